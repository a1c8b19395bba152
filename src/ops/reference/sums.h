#pragma once

#include <cstdint>

#include "base/bf16.h"

// The long loops of the reference operators. Each sum has one fixed order, whatever the instruction set:
// 32 partial sums (element i goes to partial sum i mod 32), added up pairwise at the end. So equal
// inputs give equal bits in every step, alone or mixed, chunked or whole.

namespace tandem::ops::reference {

// sum_i a[i] * b[i]
[[nodiscard]] float dot(const float* a, const float* b, std::int64_t n);

// y[i] += scale * x[i], element by element.
void add_scaled(float* y, float scale, const float* x, std::int64_t n);
// y[i] *= scale
void scale(float* y, float by, std::int64_t n);

void to_floats(float* y, const bf16* x, std::int64_t n);

}  // namespace tandem::ops::reference
