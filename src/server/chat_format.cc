#include "server/chat_format.h"

#include "server/format_parts.h"
#include "server/ids.h"
#include "server/logprob_json.h"

namespace tandem::server {
namespace {

void write_logprobs(JsonWriter& json, const std::vector<std::string>& entries) {
  json.key("logprobs").begin_object().key("content").begin_array();
  for (const std::string& entry : entries) json.raw(entry);
  json.end_array().end_object();
}

}  // namespace

ChatFormat::Choice::Choice(const Reading& reading)
    : splitter({.inside = reading.inside_think, .tool_calls_end_reasoning = !reading.tools.empty()}) {
  if (!reading.tools.empty()) tools = std::make_unique<text::ToolCallParser>(reading.tools);
}

ChatFormat::ChatFormat(AnswerHead head, int choices, const Reading& reading, const PromptText& text)
    : head_(std::move(head)), text_(text) {
  for (int i = 0; i < choices; ++i) choices_.emplace_back(reading);
}

void ChatFormat::begin_chunk(JsonWriter& json) const {
  write_head(json, head_, "chat.completion.chunk");
  json.key("choices").begin_array();
}

void ChatFormat::end_chunk(JsonWriter& json, std::string& out) const {
  json.end_array();
  if (head_.include_usage) json.key("usage").null();
  json.end_object();
  append_event(out, json.take());
}

void ChatFormat::delta(int index, engine::Delta delta, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  std::vector<std::string> logprobs;
  for (const engine::TokenLogprob& entry : delta.logprobs) {
    JsonWriter json;
    write_chat_logprob(json, entry, text_, head_);
    logprobs.push_back(json.take());
  }
  text::ReasoningSplitter::Piece split = choice.splitter.push(delta.text);
  Piece found;
  if (choice.tools) {
    found = choice.tools->push(split.content);
  } else {
    found.text = std::move(split.content);
  }
  piece(index, split.reasoning, found, std::move(logprobs), out);
}

void ChatFormat::piece(int index, const std::string& reasoning, const Piece& piece,
                       std::vector<std::string> logprobs, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  const bool empty = reasoning.empty() && piece.text.empty() && piece.calls.empty() && logprobs.empty();
  if (empty) return;
  for (const text::ToolCallParser::CallDelta& call : piece.calls) {
    const auto position = static_cast<std::size_t>(call.index);
    if (position >= choice.calls.size()) choice.calls.resize(position + 1);
    if (choice.calls[position].id.empty()) choice.calls[position].id = new_id("call_");
    if (head_.stream) continue;
    choice.calls[position].name += call.name;
    choice.calls[position].arguments += call.arguments;
  }
  if (!head_.stream) {
    choice.reasoning += reasoning;
    choice.content += piece.text;
    for (std::string& entry : logprobs) choice.logprobs.push_back(std::move(entry));
    return;
  }
  JsonWriter json;
  begin_chunk(json);
  json.begin_object().member("index", index).key("delta").begin_object();
  if (!choice.started) json.member("role", "assistant");
  if (!reasoning.empty()) json.member("reasoning_content", reasoning);
  if (!piece.text.empty() || (reasoning.empty() && piece.calls.empty())) json.member("content", piece.text);
  if (!piece.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const text::ToolCallParser::CallDelta& call : piece.calls) {
      json.begin_object().member("index", call.index);
      if (!call.name.empty()) {
        json.member("id", choice.calls[static_cast<std::size_t>(call.index)].id).member("type", "function");
      }
      json.key("function").begin_object();
      if (!call.name.empty()) json.member("name", call.name);
      json.member("arguments", call.arguments).end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
  if (head_.logprobs) {
    if (logprobs.empty()) {
      json.key("logprobs").null();
    } else {
      write_logprobs(json, logprobs);
    }
  }
  json.key("finish_reason").null().end_object();
  end_chunk(json, out);
  choice.started = true;
}

void ChatFormat::finish(int index, const engine::Finish& finish, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  text::ReasoningSplitter::Piece rest = choice.splitter.finish();
  bool unfinished = false;
  if (choice.tools) {
    // Two pieces: a call may end and text begin between them.
    piece(index, rest.reasoning, choice.tools->push(rest.content), {}, out);
    piece(index, "", choice.tools->finish(), {}, out);
    unfinished = choice.tools->unfinished_call();
  } else {
    piece(index, rest.reasoning, {.text = std::move(rest.content), .calls = {}}, {}, out);
  }
  // A call that the limit or an early end cut is no call to act on.
  const bool called = !choice.calls.empty() && !unfinished && finish.reason == engine::FinishReason::Stop;
  choice.reason = finish.reason == engine::FinishReason::Length ? "length" : called ? "tool_calls" : "stop";
  choice.stop_reason = stop_reason_json(finish, head_);
  add_usage(usage_, finish.usage);
  if (!head_.stream) return;

  JsonWriter json;
  begin_chunk(json);
  json.begin_object().member("index", index).key("delta").begin_object();
  if (!choice.started) json.member("role", "assistant").member("content", "");
  json.end_object();
  if (head_.logprobs) json.key("logprobs").null();
  json.member("finish_reason", choice.reason).key("stop_reason").raw(choice.stop_reason).end_object();
  end_chunk(json, out);
  choice.started = true;
}

void ChatFormat::end(std::string& out) {
  JsonWriter json;
  if (head_.stream) {
    if (head_.include_usage) {
      write_head(json, head_, "chat.completion.chunk");
      json.key("choices").begin_array().end_array();
      write_usage(json, usage_);
      json.end_object();
      append_event(out, json.take());
    }
    append_done(out);
    return;
  }
  write_head(json, head_, "chat.completion");
  json.key("choices").begin_array();
  for (int i = 0; i < static_cast<int>(choices_.size()); ++i) write_choice(json, i);
  json.end_array();
  write_usage(json, usage_);
  json.end_object();
  out += json.take();
}

void ChatFormat::write_choice(JsonWriter& json, int index) const {
  const Choice& choice = choices_[static_cast<std::size_t>(index)];
  json.begin_object().member("index", index).key("message").begin_object().member("role", "assistant");
  json.key("content");
  choice.content.empty() && !choice.calls.empty() ? json.null() : json.string(choice.content);
  json.key("refusal").null();
  if (!choice.reasoning.empty()) json.member("reasoning_content", choice.reasoning);
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const Call& call : choice.calls) {
      json.begin_object().member("id", call.id).member("type", "function").key("function").begin_object();
      json.member("name", call.name).member("arguments", call.arguments).end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
  if (head_.logprobs) {
    write_logprobs(json, choice.logprobs);
  } else {
    json.key("logprobs").null();
  }
  json.member("finish_reason", choice.reason).key("stop_reason").raw(choice.stop_reason).end_object();
}

}  // namespace tandem::server
