#include "server/completion_format.h"

#include "server/format_parts.h"

namespace tandem::server {

CompletionFormat::CompletionFormat(AnswerHead head, int choices, std::optional<Echo> echo, const PromptText& text)
    : head_(std::move(head)), echo_(std::move(echo)) {
  choices_.reserve(static_cast<std::size_t>(choices));
  for (int i = 0; i < choices; ++i) choices_.push_back(Choice{.logprobs = CompletionLogprobs(text, head_)});
}

void CompletionFormat::begin_choice(Choice& choice, const engine::Delta* first) {
  if (choice.started) return;
  choice.started = true;
  if (!echo_) return;
  choice.text = echo_->text;
  if (!head_.logprobs || echo_->prompt.empty()) return;
  choice.logprobs.add_first(echo_->prompt.front());
  if (first == nullptr) return;
  for (const engine::TokenLogprob& entry : first->prompt_logprobs) choice.logprobs.add(entry);
}

void CompletionFormat::delta(int index, engine::Delta delta, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  begin_choice(choice, &delta);
  if (!echo_ || !echo_->score_only) {
    choice.text += delta.text;
    for (const engine::TokenLogprob& entry : delta.logprobs) choice.logprobs.add(entry);
  }
  if (head_.stream && (!choice.text.empty() || !choice.logprobs.empty())) event(index, out);
}

void CompletionFormat::event(int index, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  JsonWriter json;
  write_head(json, head_, "text_completion");
  json.key("choices").begin_array();
  write_choice(json, index, !choice.logprobs.empty(), choice.text);
  json.end_array();
  if (head_.include_usage) json.key("usage").null();
  json.end_object();
  append_event(out, json.take());
  choice.text.clear();
}

void CompletionFormat::finish(int index, const engine::Finish& finish, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  begin_choice(choice, nullptr);
  engine::Usage usage = finish.usage;
  const bool score_only = echo_ && echo_->score_only;
  if (score_only) usage.completion_tokens = 0;
  choice.reason = score_only || finish.reason == engine::FinishReason::Length ? "length" : "stop";
  choice.stop_reason = score_only ? "null" : stop_reason_json(finish, head_);
  add_usage(usage_, usage);
  if (head_.stream) event(index, out);
}

void CompletionFormat::end(std::string& out) {
  JsonWriter json;
  write_head(json, head_, "text_completion");
  json.key("choices").begin_array();
  if (!head_.stream) {
    for (int i = 0; i < static_cast<int>(choices_.size()); ++i) {
      write_choice(json, i, head_.logprobs, choices_[static_cast<std::size_t>(i)].text);
    }
  }
  json.end_array();
  write_usage(json, usage_);
  json.end_object();
  if (!head_.stream) {
    out += json.take();
    return;
  }
  const std::string usage = json.take();
  if (head_.include_usage) append_event(out, usage);
  append_done(out);
}

void CompletionFormat::write_choice(JsonWriter& json, int index, bool with_logprobs, std::string_view text) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  json.begin_object().member("index", index).member("text", text).key("logprobs");
  if (with_logprobs) {
    choice.logprobs.write(json);
  } else {
    json.null();
  }
  json.key("finish_reason");
  if (choice.reason.empty()) {
    json.null();
  } else {
    json.string(choice.reason).key("stop_reason").raw(choice.stop_reason);
  }
  json.end_object();
}

}  // namespace tandem::server
