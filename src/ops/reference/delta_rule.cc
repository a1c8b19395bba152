#include <array>
#include <cmath>

#include "ops/reference/operators.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {
namespace {

constexpr int kDim = kDeltaHeadDim;
using Head = std::array<float, kDim>;

// sum_i x[i] * state[i, :], i ascending.
Head read(const float* state, const float* x) {
  Head sum{};
  for (int i = 0; i < kDim; ++i) add_scaled(sum.data(), x[i], state + i * kDim, kDim);
  return sum;
}

}  // namespace

// The recurrence, token by token, for every row: its sums cannot depend on where a chunk ends.
void delta_rule(const HostStep& step, const DeltaRuleArgs& args) {
  const int value_heads = args.shape.value_heads;
  const int group = value_heads / args.shape.key_heads;
  for (const StepRow& row : step.rows()) {
    for (int h = 0; h < value_heads; ++h) {
      float* state =
          args.state.state + row.slot.value * args.state.state_stride + std::int64_t{h} * kDim * kDim;
      if (row.base_pos == 0) std::fill(state, state + kDim * kDim, 0.0f);
      for (int i = 0; i < row.tokens; ++i) {
        const std::int64_t t = row.token_begin + i;
        const float* q = args.q.row(t, h / group);
        const float* k = args.k.row(t, h / group);
        const bf16* v = args.v.row(t, h);

        scale(state, std::exp(args.decay.row(t)[h]), kDim * kDim);
        const Head predicted = read(state, k);
        Head d;
        for (int j = 0; j < kDim; ++j) d[j] = args.beta.row(t)[h] * (to_float(v[j]) - predicted[j]);
        for (int j = 0; j < kDim; ++j) add_scaled(state + j * kDim, k[j], d.data(), kDim);
        const Head o = read(state, q);
        for (int j = 0; j < kDim; ++j) args.o.row(t, h)[j] = to_bf16(o[j]);
      }
    }
  }
}

}  // namespace tandem::ops::reference
