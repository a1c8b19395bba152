#pragma once

#include <optional>
#include <random>
#include <span>

#include "engine/engine.h"

namespace tandem::cli::soak {

// One request of the load, and when its client leaves.
struct Planned {
  engine::Request request;
  bool wants_stop = false;          // one of the tokens it gives when alone shall end it
  std::optional<int> leaves_after;  // cancelled when that many tokens have come; 0: at once
};

// Any request that the rule SAME can judge: 1 to 640 prompt tokens, often around a page's edge; up to 40 tokens; greedy or
// sampled with its own seed; penalties, bias and min_tokens now and then. Of five, one leaves early and one wants a stop.
// Prompts are random ids or, where there is a `text` of at least kLongestPrompt tokens, slices of it.
[[nodiscard]] Planned draw(std::mt19937& random, int vocab, std::span<const TokenId> text = {});

inline constexpr int kLongestPrompt = 640;

}  // namespace tandem::cli::soak
