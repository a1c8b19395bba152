#include <array>
#include <cmath>

#include "ops/reference/operators.h"
#include "ops/reference/scalar_math.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {
namespace {

constexpr float kL2Eps = 1e-6f;                      // inside the root; a constant of the model family
const float kQueryScale = 1.0f / std::sqrt(128.0f);  // kDeltaHeadDim^(-1/2)

// One token's convolution and SiLU. window[ch] holds its three earlier inputs, oldest first.
void convolve(const bf16* u, const bf16* window, const float* weight, std::int64_t channels, float* m) {
  for (std::int64_t ch = 0; ch < channels; ++ch) {
    const bf16* past = window + ch * kConvWindow;
    const float* w = weight + ch * kConvTaps;
    float c = 0.0f;
    for (int j = 0; j < kConvWindow; ++j) c += w[j] * to_float(past[j]);
    c += w[kConvWindow] * to_float(u[ch]);
    m[ch] = round_bf16(silu(round_bf16(c)));
  }
}

void shift_in(bf16* window, const bf16* u, std::int64_t channels) {
  for (std::int64_t ch = 0; ch < channels; ++ch) {
    bf16* past = window + ch * kConvWindow;
    for (int j = 0; j + 1 < kConvWindow; ++j) past[j] = past[j + 1];
    past[kConvWindow - 1] = u[ch];
  }
}

void l2_normalize(const float* x, float scale, float* y) {
  const float inverse = 1.0f / std::sqrt(dot(x, x, kDeltaHeadDim) + kL2Eps);
  for (int i = 0; i < kDeltaHeadDim; ++i) y[i] = x[i] * inverse * scale;
}

}  // namespace

void delta_prepare(const HostStep& step, const DeltaPrepareArgs& args) {
  const DeltaShape& shape = args.shape;
  const std::int64_t channels = shape.channels();
  std::vector<float> m(static_cast<std::size_t>(channels));
  for (const StepRow& row : step.rows()) {
    bf16* window = args.state.conv + row.slot.value * args.state.conv_stride;
    if (row.base_pos == 0) std::fill(window, window + channels * kConvWindow, bf16{});
    for (int i = 0; i < row.tokens; ++i) {
      const std::int64_t t = row.token_begin + i;
      const bf16* u = args.projected.row(t);
      convolve(u, window, args.params.conv_weight, channels, m.data());
      shift_in(window, u, channels);

      const float* q = m.data();
      const float* k = q + shape.key_width();
      const float* v = k + shape.key_width();
      for (int h = 0; h < shape.key_heads; ++h) {
        l2_normalize(q + h * kDeltaHeadDim, kQueryScale, args.q.row(t, h));
        l2_normalize(k + h * kDeltaHeadDim, 1.0f, args.k.row(t, h));
      }
      const bf16* b = u + channels + shape.value_width();
      const bf16* a = b + shape.value_heads;
      for (int h = 0; h < shape.value_heads; ++h) {
        for (int d = 0; d < kDeltaHeadDim; ++d) args.v.row(t, h)[d] = to_bf16(v[h * kDeltaHeadDim + d]);
        args.beta.row(t)[h] = round_bf16(sigmoid(to_float(b[h])));
        args.decay.row(t)[h] =
            -std::exp(args.params.a_log[h]) * softplus(to_float(a[h]) + args.params.dt_bias[h]);
      }
    }
  }
}

}  // namespace tandem::ops::reference
