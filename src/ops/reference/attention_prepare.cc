#include <algorithm>
#include <array>
#include <cmath>

#include "ops/reference/operators.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {
namespace {

constexpr int kPairs = kRotaryDim / 2;
using Head = std::array<float, kHeadDim>;

// cos and sin of one position, rounded to bf16.
struct Rotation {
  std::array<float, kPairs> cosine, sine;
};

Rotation rotation_at(std::int32_t position, float theta) {
  Rotation rotation;
  for (int i = 0; i < kPairs; ++i) {
    const float inverse_frequency = 1.0f / std::pow(theta, static_cast<float>(2 * i) / kRotaryDim);
    const float angle = static_cast<float>(position) * inverse_frequency;
    rotation.cosine[i] = round_bf16(std::cos(angle));
    rotation.sine[i] = round_bf16(std::sin(angle));
  }
  return rotation;
}

// Norm and rotary of one head; what leaves it has been rounded to bf16.
void normalize_and_rotate(const bf16* in, const float* weight, float eps, const Rotation& rotation,
                          bf16* out) {
  Head x;
  to_floats(x.data(), in, kHeadDim);
  const float mean = dot(x.data(), x.data(), kHeadDim) / kHeadDim;
  const float inverse_rms = 1.0f / std::sqrt(mean + eps);
  for (int i = 0; i < kHeadDim; ++i) x[i] = round_bf16(x[i] * inverse_rms * (1.0f + weight[i]));
  for (int i = 0; i < kPairs; ++i) {
    const float first = x[i];
    const float second = x[i + kPairs];
    const float c = rotation.cosine[i];
    const float s = rotation.sine[i];
    x[i] = round_bf16(round_bf16(first * c) + round_bf16(-second * s));
    x[i + kPairs] = round_bf16(round_bf16(second * c) + round_bf16(first * s));
  }
  for (int i = 0; i < kHeadDim; ++i) out[i] = to_bf16(x[i]);
}

}  // namespace

void attention_prepare(const HostStep& step, const AttentionPrepareArgs& args) {
  const std::int64_t heads = args.q.size(1);
  for (const StepRow& row : step.rows()) {
    const PageId* pages = step.pages(row);
    for (int i = 0; i < row.tokens; ++i) {
      const std::int64_t t = row.token_begin + i;
      const std::int32_t position = row.base_pos + i;
      const Rotation rotation = rotation_at(position, args.rope_theta);
      const bf16* in = args.projected.row(t);
      for (std::int64_t j = 0; j < heads; ++j) {
        normalize_and_rotate(in + j * 2 * kHeadDim, args.q_norm, args.eps, rotation, args.q.row(t, j));
      }
      const bf16* k = in + heads * 2 * kHeadDim;
      const bf16* v = k + args.kv.kv_heads * kHeadDim;
      bf16* page = args.kv.base + pages[position / kPageTokens].value * args.kv.page_stride;
      for (int j = 0; j < args.kv.kv_heads; ++j) {
        bf16* k_out = page + (j * kPageTokens + position % kPageTokens) * kHeadDim;
        normalize_and_rotate(k + j * kHeadDim, args.k_norm, args.eps, rotation, k_out);
        std::copy(v + j * kHeadDim, v + (j + 1) * kHeadDim, k_out + args.kv.v_offset);
      }
    }
  }
}

}  // namespace tandem::ops::reference
