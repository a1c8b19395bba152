#pragma once

#include <cstdint>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// What tuning needs of the device beside the products.

// Fills with values spread evenly over -scale to scale, the same for the same seed.
[[nodiscard]] Result<void> fill_random(const Context& context, bf16* values, std::int64_t count, float scale, unsigned seed);

// How far b is from a. Waits for the stream; `scratch` is 16 bytes of device memory. NaN in either is infinitely far.
struct Difference {
  float largest = 0;    // |a - b|
  float magnitude = 0;  // |a|, largest
};
[[nodiscard]] Result<Difference> compare(const Context& context, const bf16* a, const bf16* b, std::int64_t count, void* scratch);

}  // namespace tandem::ops::cuda
