// Passes over a row of logits. Included by the kernel file of one instruction set.

#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

LogitScan scan_logits(const float* logits, std::int64_t n) {
  // x - x is 0 for finite x and NaN otherwise, and NaN stays in a sum.
  V most = set(-__builtin_inff()), strange = zero();
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const V x = load(logits + i);
    most = max(most, x);
    strange = add(strange, sub(x, x));
  }
  LogitScan scan{.largest = largest(most), .finite = sum(strange) == 0.0f};
  for (; i < n; ++i) {
    if (logits[i] > scan.largest) scan.largest = logits[i];
    if (!(logits[i] - logits[i] == 0.0f)) scan.finite = false;
  }
  return scan;
}

void divide(float* x, std::int64_t n, float by) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(x + i, div(load(x + i), set(by)));
  for (; i < n; ++i) x[i] /= by;
}

// exact::exp_negative, many at a time: the same operations in the same order.
TANDEM_INLINE V exact_exp_negative(V x) {
  const I n = truncate_to_int(add(mul(max(x, set(-88.0f)), set(1.44269504f)), set(-0.5f)));
  const V n_float = to_floats(n);
  const V r = sub(sub(x, mul(n_float, set(0.693359375f))), mul(n_float, set(-2.12194440e-4f)));
  V p = set(1.0f / 5040.0f);
  p = add(mul(p, r), set(1.0f / 720.0f));
  p = add(mul(p, r), set(1.0f / 120.0f));
  p = add(mul(p, r), set(1.0f / 24.0f));
  p = add(mul(p, r), set(1.0f / 6.0f));
  p = add(mul(p, r), set(0.5f));
  p = add(mul(p, r), set(1.0f));
  p = add(mul(p, r), set(1.0f));
  const V y = mul(p, floats(shift_left<23>(add_int(n, set_int(127)))));
  return where_greater(x, set(-87.0f), y, zero());
}

std::uint64_t sum_weights(const float* logits, std::int64_t n, float largest_logit) {
  constexpr float kOne = 17592186044416.0f;  // exact::kWeightOne
  std::uint64_t total = 0;
  alignas(64) float weights[kWidth];
  std::int64_t i = 0;
  for (; i < n; i += kWidth) {
    const int count = n - i < kWidth ? static_cast<int>(n - i) : kWidth;
    if (count == kWidth) {
      store(weights, mul(exact_exp_negative(sub(load(logits + i), set(largest_logit))), set(kOne)));
    } else {
      for (int j = 0; j < kWidth; ++j) weights[j] = j < count ? logits[i + j] : -__builtin_inff();
      store(weights, mul(exact_exp_negative(sub(load(weights), set(largest_logit))), set(kOne)));
    }
    for (int j = 0; j < kWidth; ++j) total += static_cast<std::uint64_t>(weights[j]);
  }
  return total;
}

std::int64_t collect(const float* logits, std::int64_t n, float threshold, std::int32_t* ids,
                     std::int64_t capacity) {
  std::int64_t count = 0;
  const V least = set(threshold);
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    if (!any_at_least(load(logits + i), least)) continue;
    for (int j = 0; j < kWidth; ++j) {
      if (logits[i + j] >= threshold) {
        if (count == capacity) return count;
        ids[count++] = static_cast<std::int32_t>(i + j);
      }
    }
  }
  for (; i < n; ++i) {
    if (logits[i] >= threshold) {
      if (count == capacity) return count;
      ids[count++] = static_cast<std::int32_t>(i);
    }
  }
  return count;
}

}  // namespace
}  // namespace tandem::ops::cpu
