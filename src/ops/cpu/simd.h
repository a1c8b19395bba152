// One vector of floats in the widest registers that the including file is compiled for. Included only by the
// kernel files of one instruction set; everything is local to them (an inline function with AVX-512 code that
// the linker shared with other files would crash on older processors).
//
//   V       kWidth floats: 16 with AVX-512, 8 with AVX2, 4 with SSE2
//   fma     fused where the processor has it, else rounded twice
//
// What must have the same bits as the reference uses mul and add.

#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/bf16.h"

// GCC 12 takes the undefined operand inside its own AVX-512 intrinsics for ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wunused-function"

#define TANDEM_INLINE [[gnu::always_inline]] static inline

namespace tandem::ops::cpu {
namespace {

#if defined(__AVX512F__)

constexpr int kWidth = 16;
using V = __m512;
using I = __m512i;

TANDEM_INLINE V zero() { return _mm512_setzero_ps(); }
TANDEM_INLINE V set(float x) { return _mm512_set1_ps(x); }
TANDEM_INLINE V load(const float* p) { return _mm512_loadu_ps(p); }
TANDEM_INLINE void store(float* p, V x) { _mm512_storeu_ps(p, x); }
TANDEM_INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
TANDEM_INLINE V sub(V a, V b) { return _mm512_sub_ps(a, b); }
TANDEM_INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
TANDEM_INLINE V div(V a, V b) { return _mm512_div_ps(a, b); }
TANDEM_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
// 1 / x within 2 units in the last place, for normal x whose reciprocal is normal: an estimate and one Newton
// step.
TANDEM_INLINE V reciprocal(V x) {
  const V estimate = _mm512_rcp14_ps(x);
  return mul(estimate, _mm512_fnmadd_ps(x, estimate, set(2.0f)));
}
TANDEM_INLINE V max(V a, V b) { return _mm512_max_ps(a, b); }
TANDEM_INLINE V min(V a, V b) { return _mm512_min_ps(a, b); }
TANDEM_INLINE I words(V x) { return _mm512_castps_si512(x); }
TANDEM_INLINE V floats(I x) { return _mm512_castsi512_ps(x); }
TANDEM_INLINE I round_to_int(V x) { return _mm512_cvtps_epi32(x); }
TANDEM_INLINE I truncate_to_int(V x) { return _mm512_cvttps_epi32(x); }
TANDEM_INLINE V to_floats(I x) { return _mm512_cvtepi32_ps(x); }
TANDEM_INLINE I set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
TANDEM_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
TANDEM_INLINE I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
TANDEM_INLINE I and_int(I a, I b) { return _mm512_and_si512(a, b); }
template <int Bits>
TANDEM_INLINE I shift_left(I x) {
  return _mm512_slli_epi32(x, Bits);
}
template <int Bits>
TANDEM_INLINE I shift_right(I x) {
  return _mm512_srli_epi32(x, Bits);
}
TANDEM_INLINE I xor_int(I a, I b) { return _mm512_xor_si512(a, b); }
// Upper and lower halves of the 64-bit products of unsigned lanes.
TANDEM_INLINE void multiply_wide(I a, I b, I& high, I& low) {
  const I even = _mm512_mul_epu32(a, b);
  const I odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
  low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
  high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}
TANDEM_INLINE void store_int(void* p, I x) { _mm512_storeu_si512(p, x); }
TANDEM_INLINE I load_int(const void* p) { return _mm512_loadu_si512(p); }
// 32-bit words `stride` words apart.
TANDEM_INLINE I gather(const std::uint32_t* p, int stride) {
  const I index = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                     set_int(stride));
  return _mm512_i32gather_epi32(index, p, 4);
}
TANDEM_INLINE float sum(V x) { return _mm512_reduce_add_ps(x); }
TANDEM_INLINE float largest(V x) { return _mm512_reduce_max_ps(x); }
// a > b ? x : y
TANDEM_INLINE V where_greater(V a, V b, V x, V y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}
TANDEM_INLINE bool any_at_least(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ) != 0; }
TANDEM_INLINE V load(const bf16* p) {
  return floats(
      shift_left<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))));
}
// x is NaN ? a : b
TANDEM_INLINE V where_nan(V x, V a, V b) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), b, a);
}
TANDEM_INLINE void store_upper_halves(bf16* p, I x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(shift_right<16>(x)));
}

#elif defined(__AVX2__)

constexpr int kWidth = 8;
using V = __m256;
using I = __m256i;

TANDEM_INLINE V zero() { return _mm256_setzero_ps(); }
TANDEM_INLINE V set(float x) { return _mm256_set1_ps(x); }
TANDEM_INLINE V load(const float* p) { return _mm256_loadu_ps(p); }
TANDEM_INLINE void store(float* p, V x) { _mm256_storeu_ps(p, x); }
TANDEM_INLINE V add(V a, V b) { return _mm256_add_ps(a, b); }
TANDEM_INLINE V sub(V a, V b) { return _mm256_sub_ps(a, b); }
TANDEM_INLINE V mul(V a, V b) { return _mm256_mul_ps(a, b); }
TANDEM_INLINE V div(V a, V b) { return _mm256_div_ps(a, b); }
TANDEM_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
// The estimate has 12 bits only, so here a division is as fast and exact.
TANDEM_INLINE V reciprocal(V x) { return div(set(1.0f), x); }
TANDEM_INLINE V max(V a, V b) { return _mm256_max_ps(a, b); }
TANDEM_INLINE V min(V a, V b) { return _mm256_min_ps(a, b); }
TANDEM_INLINE I words(V x) { return _mm256_castps_si256(x); }
TANDEM_INLINE V floats(I x) { return _mm256_castsi256_ps(x); }
TANDEM_INLINE I round_to_int(V x) { return _mm256_cvtps_epi32(x); }
TANDEM_INLINE I truncate_to_int(V x) { return _mm256_cvttps_epi32(x); }
TANDEM_INLINE V to_floats(I x) { return _mm256_cvtepi32_ps(x); }
TANDEM_INLINE I set_int(std::int32_t x) { return _mm256_set1_epi32(x); }
TANDEM_INLINE I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
TANDEM_INLINE I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
TANDEM_INLINE I and_int(I a, I b) { return _mm256_and_si256(a, b); }
template <int Bits>
TANDEM_INLINE I shift_left(I x) {
  return _mm256_slli_epi32(x, Bits);
}
template <int Bits>
TANDEM_INLINE I shift_right(I x) {
  return _mm256_srli_epi32(x, Bits);
}
TANDEM_INLINE I xor_int(I a, I b) { return _mm256_xor_si256(a, b); }
TANDEM_INLINE void multiply_wide(I a, I b, I& high, I& low) {
  const I even = _mm256_mul_epu32(a, b);
  const I odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
TANDEM_INLINE void store_int(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
TANDEM_INLINE I load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
TANDEM_INLINE I gather(const std::uint32_t* p, int stride) {
  const I index = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), set_int(stride));
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(p), index, 4);
}
TANDEM_INLINE float sum(V x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
TANDEM_INLINE float largest(V x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
TANDEM_INLINE V where_greater(V a, V b, V x, V y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
TANDEM_INLINE bool any_at_least(V a, V b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)) != 0; }
TANDEM_INLINE V load(const bf16* p) {
  return floats(shift_left<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))));
}
TANDEM_INLINE V where_nan(V x, V a, V b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }
TANDEM_INLINE void store_upper_halves(bf16* p, I x) {
  const __m256i halves = shift_right<16>(x);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

#else

constexpr int kWidth = 4;
using V = __m128;
using I = __m128i;

TANDEM_INLINE V zero() { return _mm_setzero_ps(); }
TANDEM_INLINE V set(float x) { return _mm_set1_ps(x); }
TANDEM_INLINE V load(const float* p) { return _mm_loadu_ps(p); }
TANDEM_INLINE void store(float* p, V x) { _mm_storeu_ps(p, x); }
TANDEM_INLINE V add(V a, V b) { return _mm_add_ps(a, b); }
TANDEM_INLINE V sub(V a, V b) { return _mm_sub_ps(a, b); }
TANDEM_INLINE V mul(V a, V b) { return _mm_mul_ps(a, b); }
TANDEM_INLINE V div(V a, V b) { return _mm_div_ps(a, b); }
TANDEM_INLINE V fma(V a, V b, V c) { return add(mul(a, b), c); }
TANDEM_INLINE V reciprocal(V x) { return div(set(1.0f), x); }
TANDEM_INLINE V max(V a, V b) { return _mm_max_ps(a, b); }
TANDEM_INLINE V min(V a, V b) { return _mm_min_ps(a, b); }
TANDEM_INLINE I words(V x) { return _mm_castps_si128(x); }
TANDEM_INLINE V floats(I x) { return _mm_castsi128_ps(x); }
TANDEM_INLINE I round_to_int(V x) { return _mm_cvtps_epi32(x); }
TANDEM_INLINE I truncate_to_int(V x) { return _mm_cvttps_epi32(x); }
TANDEM_INLINE V to_floats(I x) { return _mm_cvtepi32_ps(x); }
TANDEM_INLINE I set_int(std::int32_t x) { return _mm_set1_epi32(x); }
TANDEM_INLINE I add_int(I a, I b) { return _mm_add_epi32(a, b); }
TANDEM_INLINE I sub_int(I a, I b) { return _mm_sub_epi32(a, b); }
TANDEM_INLINE I and_int(I a, I b) { return _mm_and_si128(a, b); }
template <int Bits>
TANDEM_INLINE I shift_left(I x) {
  return _mm_slli_epi32(x, Bits);
}
template <int Bits>
TANDEM_INLINE I shift_right(I x) {
  return _mm_srli_epi32(x, Bits);
}
TANDEM_INLINE I xor_int(I a, I b) { return _mm_xor_si128(a, b); }
TANDEM_INLINE void multiply_wide(I a, I b, I& high, I& low) {
  const I even = _mm_mul_epu32(a, b);
  const I odd = _mm_mul_epu32(_mm_srli_epi64(a, 32), _mm_srli_epi64(b, 32));
  const I upper = _mm_setr_epi32(0, -1, 0, -1);
  low = _mm_or_si128(_mm_andnot_si128(upper, even), _mm_slli_epi64(odd, 32));
  high = _mm_or_si128(_mm_srli_epi64(even, 32), _mm_and_si128(upper, odd));
}
TANDEM_INLINE void store_int(void* p, I x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
TANDEM_INLINE I load_int(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
TANDEM_INLINE I gather(const std::uint32_t* p, int stride) {
  return _mm_setr_epi32(static_cast<int>(p[0]), static_cast<int>(p[stride]), static_cast<int>(p[2 * stride]),
                        static_cast<int>(p[3 * stride]));
}
TANDEM_INLINE float sum(V x) {
  const V s = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
TANDEM_INLINE float largest(V x) {
  const V s = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
TANDEM_INLINE V select(V mask, V x, V y) { return _mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, y)); }
TANDEM_INLINE V where_greater(V a, V b, V x, V y) { return select(_mm_cmpgt_ps(a, b), x, y); }
TANDEM_INLINE bool any_at_least(V a, V b) { return _mm_movemask_ps(_mm_cmpge_ps(a, b)) != 0; }
TANDEM_INLINE V load(const bf16* p) {
  return floats(
      _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
TANDEM_INLINE V where_nan(V x, V a, V b) { return select(_mm_cmpunord_ps(x, x), a, b); }
TANDEM_INLINE void store_upper_halves(bf16* p, I x) {
  const __m128i halves = _mm_srai_epi32(x, 16);  // sign-extended, so the saturating pack keeps them
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(halves, halves));
}

#endif

// Unsigned lanes as floats, rounded once: both halves are exact before the addition.
TANDEM_INLINE V unsigned_to_floats(I x) {
  return add(mul(to_floats(shift_right<16>(x)), set(65536.0f)), to_floats(and_int(x, set_int(0xffff))));
}

// Nearest even, as to_bf16. The value is in the upper half of each word, the lower half is rubbish.
TANDEM_INLINE I rounded_words(V x) {
  const I bits = words(x);
  const I odd = and_int(shift_right<16>(bits), set_int(1));
  const V rounded = floats(add_int(bits, add_int(odd, set_int(0x7fff))));
  return words(where_nan(x, floats(set_int(0x7fc00000)), rounded));
}
#if defined(__AVX512BF16__)
// In one instruction; subnormal values become zero.
TANDEM_INLINE void store(bf16* p, V x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
#else
TANDEM_INLINE void store(bf16* p, V x) { store_upper_halves(p, rounded_words(x)); }
#endif
// bf(x), still as float.
#if defined(__AVX512BF16__)
TANDEM_INLINE V round_bf16(V x) {
  return floats(shift_left<16>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)))));
}
#else
TANDEM_INLINE V round_bf16(V x) {
  return floats(and_int(rounded_words(x), set_int(static_cast<std::int32_t>(0xffff0000))));
}
#endif

// e^x within 2 units in the last place for -87 <= x <= 87.
TANDEM_INLINE V exp_bounded(V x) {
  const I n = round_to_int(mul(x, set(1.44269504f)));
  const V n_float = to_floats(n);
  V r = fma(n_float, set(-0.693359375f), x);
  r = fma(n_float, set(2.12194440e-4f), r);
  V p = set(1.0f / 5040.0f);
  p = fma(p, r, set(1.0f / 720.0f));
  p = fma(p, r, set(1.0f / 120.0f));
  p = fma(p, r, set(1.0f / 24.0f));
  p = fma(p, r, set(1.0f / 6.0f));
  p = fma(p, r, set(0.5f));
  p = fma(p, r, set(1.0f));
  p = fma(p, r, set(1.0f));
  return mul(p, floats(shift_left<23>(add_int(n, set_int(127)))));
}
// e^x for x <= 0; 0 below -87; NaN stays NaN.
TANDEM_INLINE V exp_negative(V x) {
  const V y = exp_bounded(max(set(-87.0f), x));  // max returns its second operand if that is NaN
  return where_greater(set(-87.0f), x, zero(), y);
}

// Beyond +-80 these take the value at +-80, a few 1e-35 from the exact one. NaN stays NaN.
TANDEM_INLINE V silu(V x) {
  const V e = exp_bounded(max(min(sub(zero(), x), set(80.0f)), set(-80.0f)));
  return mul(x, reciprocal(add(set(1.0f), e)));
}
TANDEM_INLINE V sigmoid(V x) {
  const V e = exp_bounded(max(min(sub(zero(), x), set(80.0f)), set(-80.0f)));
  return where_nan(x, x, reciprocal(add(set(1.0f), e)));
}

}  // namespace
}  // namespace tandem::ops::cpu
