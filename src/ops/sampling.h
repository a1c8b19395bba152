#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tandem::ops {

inline constexpr int kMaxTopLogprobs = 20;
inline constexpr int kMaxLogitBias = 1024;  // entries of one request
inline constexpr int kMaxStopIds = 256;     // ids of one request, the model's end ids included

// How a request's tokens are chosen. The order of application (design, sampling order): logit bias,
// min_tokens mask, penalties, temperature, top-k, top-p, min-p; then Gumbel-max with noise from
// Philox(seed, position, token id). Greedy (temperature 0) takes the largest, ties to the smallest id.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy
  int top_k = 0;                    // 0: off
  float top_p = 1.0f;               // (0, 1]; 1: off. The smallest set whose probability reaches top_p
  float min_p = 0.0f;               // [0, 1]; 0: off. Keeps p >= min_p * the largest p
  float repetition_penalty = 1.0f;  // > 0; sees prompt and output: l > 0 ? l / r : l * r
  float presence_penalty = 0.0f;    // [-2, 2]; output only: l -= presence if used
  float frequency_penalty = 0.0f;   // [-2, 2]; output only: l -= frequency * count
  std::uint64_t seed = 0;           // resolved: never "random" here
  int min_tokens = 0;               // before that many, `stop_ids` cannot be chosen
  std::vector<TokenId> stop_ids;    // masked while min_tokens is not reached
  std::vector<std::pair<TokenId, float>> logit_bias;  // distinct ids inside the vocabulary
};

// Below, the largest logit has all of the probability in float32 anyway.
inline constexpr float kGreedyTemperature = 1e-5f;
[[nodiscard]] inline bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature;
}

// What became of one logit row. Plain data: a device writes it.
struct TokenChoice {
  TokenId id = -1;              // chosen, or the LogitRow's target
  float logprob = 0.0f;         // of `id`; raw or processed as the server's --logprobs-mode says
  std::int32_t top_count = 0;   // entries of the arrays below, best first, ties to the smaller id
  // 1: a logit was NaN or infinite, or the settings mask every id; `id` is meaningless (R2.7)
  std::int32_t non_finite = 0;
  std::array<TokenId, kMaxTopLogprobs> top_ids{};
  std::array<float, kMaxTopLogprobs> top_logprobs{};
};

enum class LogprobsMode : std::uint8_t { Raw, Processed };

}  // namespace tandem::ops
