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

Result<Output> Output::make(Request request, const text::Tokenizer& tokenizer) {
  TANDEM_ASSIGN(text::StopMatcher matcher, text::StopMatcher::make(request.stop, request.include_stop));
  return Output(std::move(request), tokenizer, std::move(matcher));
}

Output::Output(Request request, const text::Tokenizer& tokenizer, text::StopMatcher matcher)
    : request_(std::move(request)),
      prompt_tokens_(static_cast<std::int32_t>(request_.prompt.size())),
      detokenizer_(tokenizer, request_.skip_special_tokens),
      matcher_(std::move(matcher)) {
  if (request_.split_reasoning)
    splitter_.emplace(text::ReasoningSplitter::Options{.inside = request_.reasoning});
  detokenizer_.begin_after(request_.prompt);
  request_.prompt.clear();
  request_.prompt.shrink_to_fit();
}

bool Output::push(const ops::TokenChoice& choice, bool end_id, Delta& delta) {
  if (closed_) return false;
  counted_ += 1;
  std::string text;
  const bool in_text = !end_id || request_.include_stop;
  if (in_text) detokenizer_.push(choice.id, text);
  bytes_ += text.size();
  TokenLogprob token = request_.logprobs >= 0 ? logprob_of(choice) : TokenLogprob{.id = choice.id};
  token.in_text = in_text;
  held_.push_back({std::move(token), bytes_ + (detokenizer_.held().empty() ? 0 : 1)});
  if (counted_ <= request_.sampling.min_tokens) {
    give(text, delta);
  } else {
    std::string safe;
    matcher_.push(text, safe);
    give(safe, delta);
  }
  if (matcher_.stopped())
    close(delta);
  else
    release(delta, false);
  return matcher_.stopped();
}

void Output::flush(Delta& delta) {
  if (closed_) return;
  std::string rest;
  matcher_.flush(rest);
  give(rest, delta);
  close(delta);
}

void Output::give(std::string_view text, Delta& delta) {
  if (!splitter_) {
    delta.text += text;
    return;
  }
  const auto piece = splitter_->push(text);
  delta.text += piece.content;
  delta.reasoning_text += piece.reasoning;
}

void Output::close(Delta& delta) {
  closed_ = true;
  if (splitter_) {
    const auto piece = splitter_->finish();
    delta.text += piece.content;
    delta.reasoning_text += piece.reasoning;
  }
  release(delta, true);
}

void Output::release(Delta& delta, bool all) {
  const std::uint64_t done = bytes_ - matcher_.held_bytes() - (splitter_ ? splitter_->held_bytes() : 0);
  while (!held_.empty() && (all || held_.front().end_bytes <= done)) {
    delta.tokens.push_back(held_.front().token.id);
    if (request_.logprobs >= 0) delta.logprobs.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
}

Finish Output::finish(const scheduler::End& end) const {
  Finish finish;
  finish.usage = {.prompt_tokens = prompt_tokens_, .completion_tokens = counted_};
  if (matcher_.stopped()) {
    finish.reason = FinishReason::Stop;
    finish.stop_text = matcher_.stopped_by();
  } else if (end.reason == scheduler::EndReason::EndId) {
    finish.reason = FinishReason::Stop;
    finish.stop_token = end.end_id;
  } else {
    finish.reason = FinishReason::Length;
  }
  return finish;
}

}  // namespace tandem::engine
