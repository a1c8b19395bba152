#pragma once

#include "base/bf16.h"
#include "ops/view.h"

namespace tandem::ops {

inline constexpr int kDeltaHeadDim = 128;  // key and value head width of linear attention
inline constexpr int kConvTaps = 4;        // width of the short convolution
inline constexpr int kConvWindow = kConvTaps - 1;

// One layer's share of the state slots. Slot s has its conv window [C, 3] bf16 (pre-conv inputs, oldest
// first) at conv + s * conv_stride and its recurrent state [Hv, 128, 128] float32 (logical order: value
// head, key dim, value dim; a backend may store the last two transposed) at state + s * state_stride.
struct DeltaState {
  bf16* conv = nullptr;
  std::int64_t conv_stride = 0;   // elements between slots
  float* state = nullptr;
  std::int64_t state_stride = 0;  // elements between slots
};

// Per-layer parameters, float32 on the device; bf16-rounded on load as --ops rounding says (spec 3.0).
struct DeltaParams {
  const float* conv_weight = nullptr;  // [C, 4], tap 3 multiplies the current token
  const float* a_log = nullptr;        // [Hv]
  const float* dt_bias = nullptr;      // [Hv]
  const float* norm_weight = nullptr;  // [128] the same for all heads and ranks
};

// Hk key heads and Hv value heads of this rank; value head j uses key head floor(j / (Hv / Hk)).
// C = (2 Hk + Hv) * 128 channels: q of all key heads | k of all key heads | v of all value heads.
struct DeltaShape {
  int key_heads = 0;
  int value_heads = 0;
  [[nodiscard]] constexpr int key_width() const { return key_heads * kDeltaHeadDim; }
  [[nodiscard]] constexpr int value_width() const { return value_heads * kDeltaHeadDim; }
  [[nodiscard]] constexpr int channels() const { return 2 * key_width() + value_width(); }
  [[nodiscard]] constexpr int projected_width() const { return channels() + value_width() + 2 * value_heads; }
};

// Short convolution, SiLU, split, l2 norm, beta and decay (spec 3.4.2 to 3.4.6). Advances the conv
// window of every row's slot by the row's tokens. beta = bf16(sigmoid(b)) as float32;
// decay = -exp(a_log) * softplus(a + dt_bias), the logarithm of the state's factor, <= 0.
struct DeltaPrepareArgs {
  View<const bf16, 2> projected;  // [T, C + Hv*128 + 2 Hv]: u | z | b | a
  DeltaShape shape;
  DeltaParams params;
  DeltaState state;               // conv part
  View<float, 3> q;               // [T, Hk, 128] l2-normalised, times 128^-0.5
  View<float, 3> k;               // [T, Hk, 128] l2-normalised
  View<bf16, 3> v;                // [T, Hv, 128]
  View<float, 2> beta;            // [T, Hv]
  View<float, 2> decay;           // [T, Hv]
};

// The gated delta rule (spec 3.4.7): decay, read, write, query with the updated state.
// Decode rows use the recurrence, prefill rows the chunked form (spec 3.5) or the recurrence.
struct DeltaRuleArgs {
  View<const float, 3> q;         // as DeltaPrepare leaves them
  View<const float, 3> k;
  View<const bf16, 3> v;
  View<const float, 2> beta;
  View<const float, 2> decay;
  DeltaShape shape;
  DeltaState state;               // recurrent part, read (unless base_pos = 0) and written once per row
  View<bf16, 3> o;                // [T, Hv, 128]
};

// Gated norm (spec 3.4.8, torch path): r = bf16(o / rms(o)); s = bf16(weight * r); y = bf16(s * silu(z)).
struct GatedNormArgs {
  View<const bf16, 3> o;          // [T, Hv, 128]
  View<const bf16, 3> z;          // [T, Hv, 128], rows strided (slice of the projection)
  const float* weight;            // [128]
  View<bf16, 3> y;                // [T, Hv, 128]; may be o itself
  float eps;
};

// The whole mixer between in_proj and out_proj: prepare, rule, gated norm. A backend may fuse the three.
struct DeltaMixerArgs {
  View<const bf16, 2> projected;  // [T, C + Hv*128 + 2 Hv]
  DeltaShape shape;
  DeltaParams params;
  DeltaState state;
  View<bf16, 3> y;                // [T, Hv, 128]
  float eps;
  // Scratch of the unfused form, sized like DeltaPrepareArgs' outputs; contents unspecified afterwards.
  View<float, 3> q, k;
  View<bf16, 3> v;
  View<float, 2> beta, decay;
};

}  // namespace tandem::ops
