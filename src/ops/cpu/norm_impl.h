// Norms, residual and rotary. Included by the kernel file of one instruction set.

#pragma once

#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr int kAttentionDim = 256;
constexpr int kRotaryPairs = 32;

TANDEM_INLINE float widen(bf16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}
TANDEM_INLINE bf16 narrow(float x) {
  alignas(64) bf16 rounded[kWidth];
  store(rounded, set(x));
  return rounded[0];
}

TANDEM_INLINE float inverse_root(float squares, std::int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
}

// Squares of the whole vectors among the first n elements.
TANDEM_INLINE V sum_squares(const bf16* x, std::int64_t n) {
  V a = zero(), b = zero();
  for (std::int64_t i = 0; i + 2 * kWidth <= n; i += 2 * kWidth) {
    const V x0 = load(x + i), x1 = load(x + i + kWidth);
    a = fma(x0, x0, a);
    b = fma(x1, x1, b);
  }
  return add(a, b);
}

// N is a multiple of two vectors on every instruction set.
template <int N>
TANDEM_INLINE float inverse_rms(const bf16* x, float eps) {
  static_assert(N % 32 == 0);
  return inverse_root(sum(sum_squares(x, N)), N, eps);
}

void norm(const bf16* x, const float* weight, float eps, std::int64_t n, bf16* y) {
  float squares = sum(sum_squares(x, n));
  std::int64_t i = n / (2 * kWidth) * (2 * kWidth);
  for (; i < n; ++i) squares += widen(x[i]) * widen(x[i]);
  const float inverse = inverse_root(squares, n, eps);
  i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    store(y + i, mul(mul(load(x + i), set(inverse)), add(set(1.0f), load(weight + i))));
  }
  for (; i < n; ++i) y[i] = narrow(widen(x[i]) * inverse * (1.0f + weight[i]));
}

void add_to(bf16* residual, const bf16* partial, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(residual + i, add(load(residual + i), load(partial + i)));
  for (; i < n; ++i) residual[i] = narrow(widen(residual[i]) + widen(partial[i]));
}

void norm_rotary(const bf16* x, const float* weight, float eps, const float* cosine, const float* sine,
                 bf16* y) {
  const float inverse = inverse_rms<kAttentionDim>(x, eps);
  const auto normed = [&](int i) {
    return round_bf16(mul(mul(load(x + i), set(inverse)), add(set(1.0f), load(weight + i))));
  };
  for (int i = 0; i < kRotaryPairs; i += kWidth) {
    const V first = normed(i), second = normed(i + kRotaryPairs);
    const V c = load(cosine + i), s = load(sine + i);
    store(y + i, add(round_bf16(mul(first, c)), round_bf16(mul(sub(zero(), second), s))));
    store(y + i + kRotaryPairs, add(round_bf16(mul(second, c)), round_bf16(mul(first, s))));
  }
  for (int i = 2 * kRotaryPairs; i < kAttentionDim; i += kWidth) store(y + i, normed(i));
}

void to_floats_of(const bf16* x, std::int64_t n, float* y) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, load(x + i));
  for (; i < n; ++i) y[i] = widen(x[i]);
}

}  // namespace
}  // namespace tandem::ops::cpu
