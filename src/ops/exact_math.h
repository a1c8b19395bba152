#pragma once

#include <cstdint>
#include <cstring>

// exp and log that give the same bits on every device: IEEE +, -, *, / and integers, nothing fused.
// The sampler uses them so that equal logits give equal tokens on CPU and GPU.

#ifdef __CUDACC__
#define TANDEM_EVERYWHERE __host__ __device__ inline
#else
#define TANDEM_EVERYWHERE inline
#endif

namespace tandem::ops::exact {

// nvcc fuses a * b + c unless told not to; g++ is told by -ffp-contract=off.
#ifdef __CUDA_ARCH__
TANDEM_EVERYWHERE float mul(float a, float b) { return __fmul_rn(a, b); }
TANDEM_EVERYWHERE float add(float a, float b) { return __fadd_rn(a, b); }
TANDEM_EVERYWHERE float div(float a, float b) { return __fdiv_rn(a, b); }
#else
TANDEM_EVERYWHERE float mul(float a, float b) { return a * b; }
TANDEM_EVERYWHERE float add(float a, float b) { return a + b; }
TANDEM_EVERYWHERE float div(float a, float b) { return a / b; }
#endif

TANDEM_EVERYWHERE std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
TANDEM_EVERYWHERE float float_of(std::uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

constexpr float kLn2High = 0.693359375f;  // 9 significant bits: times any exponent it is exact
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kLog2E = 1.44269504f;
constexpr float kExpSmallest = -87.0f;  // below, exp_negative gives 0

// e^x for x <= 0 (minus infinity included); within 2 units in the last place. e^0 is exactly 1.
TANDEM_EVERYWHERE float exp_negative(float x) {
  if (!(x > kExpSmallest)) return 0.0f;
  const int n = static_cast<int>(add(mul(x, kLog2E), -0.5f));  // nearest integer, since x <= 0
  const float n_float = static_cast<float>(n);
  const float r = add(add(x, -mul(n_float, kLn2High)), -mul(n_float, kLn2Low));
  float p = 1.0f / 5040.0f;
  p = add(mul(p, r), 1.0f / 720.0f);
  p = add(mul(p, r), 1.0f / 120.0f);
  p = add(mul(p, r), 1.0f / 24.0f);
  p = add(mul(p, r), 1.0f / 6.0f);
  p = add(mul(p, r), 0.5f);
  p = add(mul(p, r), 1.0f);
  p = add(mul(p, r), 1.0f);
  return mul(p, float_of(static_cast<std::uint32_t>(n + 127) << 23));
}

// 2 atanh(s) = log((1 + s) / (1 - s)) for |s| <= 0.18, as 2s + correction.
TANDEM_EVERYWHERE float atanh_correction(float s2, float twice_s) {
  float p = 1.0f / 11.0f;
  p = add(mul(p, s2), 1.0f / 9.0f);
  p = add(mul(p, s2), 1.0f / 7.0f);
  p = add(mul(p, s2), 1.0f / 5.0f);
  p = add(mul(p, s2), 1.0f / 3.0f);
  return mul(twice_s, mul(p, s2));
}

// ln x for normal x > 0; within 3 units in the last place of max(|ln x|, 2^-2).
TANDEM_EVERYWHERE float log_positive(float x) {
  const std::uint32_t bits = bits_of(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float m = float_of((bits & 0x7fffffu) | 0x3f800000u);  // in [1, 2)
  if (m > 1.41421354f) {
    m = mul(m, 0.5f);
    ++exponent;
  }
  const float f = add(m, -1.0f);
  const float s = div(f, add(2.0f, f));
  const float twice_s = add(s, s);
  const float e = static_cast<float>(exponent);
  return add(mul(e, kLn2High), add(twice_s, add(atanh_correction(mul(s, s), twice_s), mul(e, kLn2Low))));
}

// ln(1 - v) for 0 <= v < 0.25, exact for small v where 1 - v is not.
TANDEM_EVERYWHERE float log_one_minus(float v) {
  const float s = div(-v, add(2.0f, -v));
  const float twice_s = add(s, s);
  return add(twice_s, atanh_correction(mul(s, s), twice_s));
}

// Probabilities as integers, whose sums do not depend on their order: e^(logit - largest) in units of
// 2^-44. 2^18 of them (the family's vocabulary) fit 64 bits.
constexpr float kWeightOne = 17592186044416.0f;  // 2^44
TANDEM_EVERYWHERE std::uint64_t weight(float logit_minus_largest) {
  return static_cast<std::uint64_t>(mul(exp_negative(logit_minus_largest), kWeightOne));
}

// ln of a sum of weights.
TANDEM_EVERYWHERE float log_of_weights(std::uint64_t sum) {
  return log_positive(mul(static_cast<float>(sum), 1.0f / kWeightOne));
}

// The weight that the most likely tokens must reach together for top-p: a token is kept if those before
// it (larger logit, or equal and smaller id) have less. At least 1, so the first is always kept.
TANDEM_EVERYWHERE std::uint64_t top_p_weight(float top_p, std::uint64_t sum) {
  const auto weight_needed =
      static_cast<std::uint64_t>(static_cast<double>(top_p) * static_cast<double>(sum));
  return weight_needed == 0 ? 1 : weight_needed;
}

}  // namespace tandem::ops::exact
