#pragma once

#include <span>

#include "cli/soak/same.h"
#include "gates/hf_gate.h"

namespace tandem::cli::soak {

// The Hugging Face gate's score, with another backend in the place of the truth: at every token of an answer, how far its 8
// best raw logprobs are from those that the other backend has there, given the same tokens before it.
//
// So nothing depends on which of two near-ties won: a difference of one id moves the ids that follow, and both sides follow.
class Scores {
 public:
  // `got`: with raw logprobs, lists of kMaxTopLogprobs. `there[i]` is the other backend's place of got.tokens[i], its list
  // as long. Both sides end together.
  void add(const Answer& got, std::span<const engine::TokenLogprob> there);

  // Of all answers; `regret` is the largest amount by which an arg-max falls short of the other backend's.
  [[nodiscard]] gates::GateFigures figures() const;
  [[nodiscard]] std::size_t tokens() const { return tokens_; }

 private:
  gates::GateFixture there_;
  std::vector<std::vector<ops::TokenChoice>> here_;
  std::size_t tokens_ = 0;
};

}  // namespace tandem::cli::soak
