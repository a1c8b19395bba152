#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace tandem::cli::soak {

// What became of one request. Its logprobs are processed ones (--logprobs-mode processed) and their lists full.
struct Answer {
  std::vector<engine::TokenLogprob> tokens;
  std::optional<engine::Finish> finish;  // none: it was cancelled before its end
};

struct Verdict {
  bool same = true;
  std::string why;        // of a request that is not the same
  int tokens = 0;         // compared, the first that differs included
  bool differs = false;   // at a place where the two best lie close enough
  double gap = 0;         // there: between the two candidates, in logprobs
  double distance = 0;    // sum over the equal tokens of |logprob - alone's|
  double largest = 0;     // the largest of them
};

// The rule SAME. `got` beside others on one backend, `alone` by itself on another: the same ids and the same end, or a
// first difference at a place where the two candidates lie within `tolerance` of each other for the one that was alone;
// what follows such a place is not compared. For a sampled request the candidates' logprobs are those that the sampler
// compares: processed, with the noise of (seed, position, id), which is the same on every backend, and the tolerance is
// divided by the temperature as they are. top_k, top_p and min_p must be off: ids at their border have no gap.
[[nodiscard]] Verdict judge(const engine::Request& request, const Answer& got, const Answer& alone, double tolerance);

}  // namespace tandem::cli::soak
