#pragma once

#include <cstdint>

#include "ops/sampling.h"

namespace tandem::ops::cuda {

// What the sampler keeps on the device for a slot: its settings, and a count for each id of the vocabulary. For who plans
// memory without a device; needs nothing of CUDA.
inline constexpr std::int64_t kSlotSettingsBytes = 56 + 8 * kMaxLogitBias + 4 * kMaxStopIds;
[[nodiscard]] constexpr std::int64_t sampler_slot_bytes(int vocab) { return kSlotSettingsBytes + std::int64_t{4} * vocab; }

}  // namespace tandem::ops::cuda
