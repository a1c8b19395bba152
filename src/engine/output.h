#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "ops/sampling.h"
#include "scheduler/request.h"
#include "text/detokenizer.h"
#include "text/reasoning.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace tandem::engine {

[[nodiscard]] TokenLogprob logprob_of(const ops::TokenChoice& choice);

// One request's completion, from tokens to deltas: detokenizer, stop strings, reasoning split.
//
// A delta's tokens are those whose text is complete with it: a token waits while a character, a possible
// stop string or a possible mark that it is part of is unfinished. Over all deltas every counted token
// comes once. Stop strings are looked for in all of the text, reasoning included, but not in that of the
// first min_tokens tokens.
//
// Thread: one at a time. The tokenizer must outlive it.
class Output {
 public:
  // Errors: those of StopMatcher::make.
  [[nodiscard]] static Result<Output> make(Request request, const text::Tokenizer& tokenizer);

  // The next token. `end_id`: it is the one that ended the request, so its text stays out unless
  // include_stop. Appends to `delta`; returns true if a stop string ends the request with this token.
  // Later tokens are then ignored.
  bool push(const ops::TokenChoice& choice, bool end_id, Delta& delta);
  // No more tokens come: appends what was held back.
  void flush(Delta& delta);
  // Tokens that count for usage so far.
  [[nodiscard]] std::int32_t counted() const { return counted_; }
  // After the last push; `end` is the scheduler's and not an error. A stop string beats what it says.
  [[nodiscard]] Finish finish(const scheduler::End& end) const;

 private:
  struct Held {
    TokenLogprob token;
    std::uint64_t end_bytes;  // it is complete when that many bytes have been given out or left out
  };
  Output(Request request, const text::Tokenizer& tokenizer, text::StopMatcher matcher);
  void give(std::string_view text, Delta& delta);
  void close(Delta& delta);
  void release(Delta& delta, bool all);

  Request request_;  // its prompt is not kept
  const std::int32_t prompt_tokens_;
  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  std::optional<text::ReasoningSplitter> splitter_;
  std::int32_t counted_ = 0;
  std::uint64_t bytes_ = 0;  // detokenized
  std::deque<Held> held_;
  bool closed_ = false;
};

}  // namespace tandem::engine
