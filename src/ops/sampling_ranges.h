#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

// The values that a field of a request may have, wherever it is written: in the body of an HTTP request, in a model's
// generation_config.json, as a flag or setting of a client, in a request of the C++ API. docs/api.md lists them.
namespace tandem::ops {

struct NumberRange {
  std::string_view name;  // of the field, as the API spells it
  double least = 0;
  double most = 0;

  // NaN lies in no range.
  [[nodiscard]] constexpr bool holds(double value) const { return value >= least && value <= most; }
  // The same for a value that was rounded to float: 0.01f is a little less than 0.01.
  [[nodiscard]] constexpr bool holds(float value) const { return value >= static_cast<float>(least) && value <= static_cast<float>(most); }
};

struct IntegerRange {
  std::string_view name;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();  // the largest: no upper bound

  [[nodiscard]] constexpr bool holds(std::int64_t value) const { return value >= least && value <= most; }
};

inline constexpr NumberRange kTemperature{"temperature", 0, 2};
inline constexpr NumberRange kTopP{"top_p", 0, 1};  // 0: the likeliest token alone
inline constexpr NumberRange kMinP{"min_p", 0, 1};
inline constexpr NumberRange kRepetitionPenalty{"repetition_penalty", 0.01, 100};
inline constexpr NumberRange kPresencePenalty{"presence_penalty", -2, 2};
inline constexpr NumberRange kFrequencyPenalty{"frequency_penalty", -2, 2};
inline constexpr NumberRange kLogitBias{"logit_bias", -100, 100};  // each value
inline constexpr IntegerRange kTopK{"top_k", -1};                  // -1, 0 and the vocabulary's size or more: off
inline constexpr IntegerRange kMaxTokens{"max_tokens", 1, std::numeric_limits<std::int32_t>::max()};
inline constexpr IntegerRange kMinTokens{"min_tokens", 0, std::numeric_limits<std::int32_t>::max()};

// What would work: "a number from 0 to 2", "an integer of at least -1".
[[nodiscard]] inline std::string what_works(const NumberRange& range) { return fmt::format("a number from {} to {}", range.least, range.most); }
[[nodiscard]] inline std::string what_works(const IntegerRange& range) {
  if (range.most == std::numeric_limits<std::int64_t>::max()) return fmt::format("an integer of at least {}", range.least);
  return fmt::format("an integer from {} to {}", range.least, range.most);
}

// "temperature must be a number from 0 to 2, got 3": the refusal of `got`, which is shown as it was written.
template <class Range>
[[nodiscard]] std::string out_of_range(const Range& range, std::string_view got) {
  return fmt::format("{} must be {}, got {}", range.name, what_works(range), got);
}

}  // namespace tandem::ops
