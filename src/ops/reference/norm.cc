#include <cmath>

#include "ops/reference/operators.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {

void norm(const NormArgs& args) {
  const std::int64_t hidden = args.x.size(1);
  std::vector<float> x(static_cast<std::size_t>(hidden));
  for (std::int64_t t = 0; t < args.x.size(0); ++t) {
    to_floats(x.data(), args.x.row(t), hidden);
    const float mean = dot(x.data(), x.data(), hidden) / static_cast<float>(hidden);
    const float inverse_rms = 1.0f / std::sqrt(mean + args.eps);
    bf16* y = args.y.row(t);
    for (std::int64_t i = 0; i < hidden; ++i) {
      y[i] = to_bf16(x[static_cast<std::size_t>(i)] * inverse_rms * (1.0f + args.weight[i]));
    }
  }
}

Result<void> reduce_add_norm(const ReduceAddNormArgs& args) {
  const std::int64_t tokens = args.partial.size(0);
  const std::int64_t hidden = args.partial.size(1);
  if (args.comm != nullptr && args.comm->world() > 1) {
    TANDEM_TRY(args.comm->all_reduce(args.partial.data, tokens * hidden));
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    bf16* residual = args.residual.row(t);
    const bf16* partial = args.partial.row(t);
    for (std::int64_t i = 0; i < hidden; ++i)
      residual[i] = to_bf16(to_float(residual[i]) + to_float(partial[i]));
  }
  norm({.x = args.residual, .weight = args.weight, .y = args.y, .eps = args.eps});
  return {};
}

}  // namespace tandem::ops::reference
