#include "engine/output.h"

#include <utility>

namespace tandem::engine {

TokenLogprob logprob_of(const ops::TokenChoice& choice) {
  TokenLogprob out{.id = choice.id, .logprob = choice.logprob};
  out.top.reserve(static_cast<std::size_t>(choice.top_count));
  for (std::size_t i = 0; i < static_cast<std::size_t>(choice.top_count); ++i)
    out.top.emplace_back(choice.top_ids[i], choice.top_logprobs[i]);
  return out;
}

Output::Output(Request request, const text::Tokenizer& tokenizer)
    : request_(std::move(request)),
      prompt_tokens_(static_cast<std::int32_t>(request_.prompt.size())),
      detokenizer_(tokenizer, request_.skip_special_tokens) {
  detokenizer_.begin_after(request_.prompt);
  request_.prompt.clear();
  request_.prompt.shrink_to_fit();
}

bool Output::push(const ops::TokenChoice& choice, bool end_id, Delta& delta) {
  if (stopped_by_) return false;
  counted_ += 1;
  std::string text;
  if (!end_id || request_.include_stop) detokenizer_.push(choice.id, text);
  bytes_in_ += text.size();
  held_.push_back({request_.logprobs >= 0 ? logprob_of(choice) : TokenLogprob{.id = choice.id},
                   bytes_in_ + (detokenizer_.held().empty() ? 0 : 1)});
  give(text, delta);
  release(delta, false);
  return false;
}

void Output::flush(Delta& delta) { release(delta, true); }

void Output::give(std::string_view text, Delta& delta) {
  bytes_out_ += text.size();
  delta.text += text;
}

void Output::release(Delta& delta, bool all) {
  while (!held_.empty() && (all || held_.front().end_bytes <= bytes_out_)) {
    delta.tokens.push_back(held_.front().token.id);
    if (request_.logprobs >= 0) delta.logprobs.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
}

Finish Output::finish(const scheduler::End& end) const {
  Finish finish;
  finish.usage = {.prompt_tokens = prompt_tokens_, .completion_tokens = counted_};
  if (stopped_by_) {
    finish.reason = FinishReason::Stop;
    finish.stop_text = stopped_by_;
  } else if (end.reason == scheduler::EndReason::EndId) {
    finish.reason = FinishReason::Stop;
    finish.stop_token = end.end_id;
  } else {
    finish.reason = FinishReason::Length;
  }
  return finish;
}

}  // namespace tandem::engine
