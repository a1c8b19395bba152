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

// exact::log_positive and exact::log_one_minus, many at a time, in the same order of operations.
TANDEM_INLINE V exact_atanh_correction(V s2, V twice_s) {
  V p = set(1.0f / 11.0f);
  p = add(mul(p, s2), set(1.0f / 9.0f));
  p = add(mul(p, s2), set(1.0f / 7.0f));
  p = add(mul(p, s2), set(1.0f / 5.0f));
  p = add(mul(p, s2), set(1.0f / 3.0f));
  return mul(twice_s, mul(p, s2));
}
TANDEM_INLINE V exact_log_positive(V x) {
  const I bits = words(x);
  const V m = floats(add_int(and_int(bits, set_int(0x7fffff)), set_int(0x3f800000)));
  const V large = set(1.41421354f);
  const V scaled = where_greater(m, large, mul(m, set(0.5f)), m);
  const V e0 = to_floats(sub_int(shift_right<23>(bits), set_int(127)));
  const V e = where_greater(m, large, add(e0, set(1.0f)), e0);
  const V f = add(scaled, set(-1.0f));
  const V s = div(f, add(set(2.0f), f));
  const V twice_s = add(s, s);
  return add(mul(e, set(0.693359375f)),
             add(twice_s, add(exact_atanh_correction(mul(s, s), twice_s), mul(e, set(-2.12194440e-4f)))));
}
TANDEM_INLINE V exact_log_one_minus(V v) {
  const V minus = sub(zero(), v);
  const V s = div(minus, add(set(2.0f), minus));
  const V twice_s = add(s, s);
  return add(twice_s, exact_atanh_correction(mul(s, s), twice_s));
}

// gumbel_of, many at a time.
TANDEM_INLINE V gumbel_of_words(I bits) {
  const V unit = set(1.0f / 4294967296.0f);
  const V u = mul(add(unsigned_to_floats(bits), set(0.5f)), unit);
  const I rest_bits = xor_int(bits, set_int(-1));
  const V rest = mul(add(unsigned_to_floats(rest_bits), set(0.5f)), unit);
  const V quarter = to_floats(shift_right<30>(rest_bits));  // 0 for rest < 2^30
  const V log_u = where_greater(set(0.5f), quarter, exact_log_one_minus(rest), exact_log_positive(u));
  return sub(zero(), exact_log_positive(sub(zero(), log_u)));
}

// Noise of the ids [first, first + 4 * kWidth), first a multiple of 4: philox.h, kWidth groups at a time.
TANDEM_INLINE void noise_of(std::uint64_t seed, std::uint64_t position, std::uint32_t first, float* noise) {
  alignas(64) std::uint32_t group[kWidth];
  for (int i = 0; i < kWidth; ++i) group[i] = first / 4 + static_cast<std::uint32_t>(i);
  I w0 = load_int(group), w1 = set_int(static_cast<std::int32_t>(position)),
    w2 = set_int(static_cast<std::int32_t>(position >> 32)), w3 = set_int(0);
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  const I m0 = set_int(static_cast<std::int32_t>(0xD2511F53u)),
          m1 = set_int(static_cast<std::int32_t>(0xCD9E8D57u));
  for (int round = 0; round < 10; ++round) {
    I high_a, low_a, high_b, low_b;
    multiply_wide(m0, w0, high_a, low_a);
    multiply_wide(m1, w2, high_b, low_b);
    w0 = xor_int(xor_int(high_b, w1), set_int(static_cast<std::int32_t>(key0)));
    w2 = xor_int(xor_int(high_a, w3), set_int(static_cast<std::int32_t>(key1)));
    w1 = low_b;
    w3 = low_a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  alignas(64) std::uint32_t lanes[4][kWidth];
  store_int(lanes[0], w0);
  store_int(lanes[1], w1);
  store_int(lanes[2], w2);
  store_int(lanes[3], w3);
  alignas(64) std::uint32_t in_order[4 * kWidth];
  for (int i = 0; i < 4 * kWidth; ++i) in_order[i] = lanes[i % 4][i / 4];
  for (int i = 0; i < 4; ++i) store(noise + i * kWidth, gumbel_of_words(load_int(in_order + i * kWidth)));
}

std::int32_t sample_gumbel(const float* logits, std::int64_t n, std::uint64_t seed, std::int64_t position) {
  constexpr float kMostNoise = 23.5f;  // gumbel_of(0xffffffff) is 22.9
  float best = -__builtin_inff();
  std::int32_t best_id = 0;
  alignas(64) float noise[4 * kWidth];
  for (std::int64_t begin = 0; begin < n; begin += 4 * kWidth) {
    const int count = n - begin < 4 * kWidth ? static_cast<int>(n - begin) : 4 * kWidth;
    if (count == 4 * kWidth) {
      V most = load(logits + begin);
      for (int i = 1; i < 4; ++i) most = max(most, load(logits + begin + i * kWidth));
      if (!any_at_least(most, set(best - kMostNoise))) continue;
    }
    noise_of(seed, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(begin), noise);
    if (count == 4 * kWidth) {
      V most = set(best);
      for (int i = 0; i < 4; ++i) {
        const V score = add(load(logits + begin + i * kWidth), load(noise + i * kWidth));
        store(noise + i * kWidth, score);
        most = max(most, score);
      }
      if (!(largest(most) > best)) continue;
    } else {
      for (int i = 0; i < count; ++i) noise[i] = logits[begin + i] + noise[i];
    }
    for (int i = 0; i < count; ++i) {
      if (noise[i] > best) {  // ids rise, so the first of equals stays
        best = noise[i];
        best_id = static_cast<std::int32_t>(begin) + i;
      }
    }
  }
  return best_id;
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
