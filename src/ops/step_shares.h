#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/clock.h"

namespace tandem::ops {

// Where a step's time goes. Every moment of a step belongs to one part.
enum class StepPart : std::uint8_t {
  Products,   // linear, linear_swiglu
  Head,       // the product with the vocabulary
  Delta,      // delta_mixer: convolution, delta rule, gated norm
  Attention,
  Norms,      // norm, reduce_add_norm; with several ranks their all-reduces too
  Rotary,     // attention_prepare: head norms, rotary, KV append
  Embedding,
  Sampling,
  Host,       // the rest of the step: metadata and the forward pass itself
  Between,    // from the last step's end to this one's begin: reply, plan, command
};
inline constexpr std::size_t kStepParts = 10;
[[nodiscard]] std::string_view name(StepPart part);  // "weight products", "head", ...

// Sums over steps. The parts' sum is `total`.
struct StepTimes {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  // of all rows
  Nanoseconds total{};
  std::array<Nanoseconds, kStepParts> parts{};

  [[nodiscard]] Nanoseconds& of(StepPart part) { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] Nanoseconds of(StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

struct StepShares {
  StepTimes decode, prompt, mixed;  // steps of decode rows only, of prefill rows only, of both
  std::int64_t weight_bytes = 0;    // what the backend holds for weights: a decode step reads all of it once
};

// Where a rank leaves its steps' times (metered_backend.h) and others pick them up. Thread: any.
class ShareMeter {
 public:
  // What has come since the last call.
  [[nodiscard]] StepShares take();
  void add(const StepTimes& step, int decode_rows, int rows, std::int64_t weight_bytes);

 private:
  std::mutex mutex_;
  StepShares shares_;
};

}  // namespace tandem::ops
