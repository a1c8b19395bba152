#include <array>
#include <cmath>

#include "ops/reference/operators.h"
#include "ops/reference/scalar_math.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {

void gated_norm(const GatedNormArgs& args) {
  std::array<float, kDeltaHeadDim> o;
  for (std::int64_t t = 0; t < args.o.size(0); ++t) {
    for (std::int64_t h = 0; h < args.o.size(1); ++h) {
      to_floats(o.data(), args.o.row(t, h), kDeltaHeadDim);
      const float mean = dot(o.data(), o.data(), kDeltaHeadDim) / kDeltaHeadDim;
      const float inverse_rms = 1.0f / std::sqrt(mean + args.eps);
      const bf16* z = args.z.row(t, h);
      bf16* y = args.y.row(t, h);
      for (int i = 0; i < kDeltaHeadDim; ++i) {
        const float normed = round_bf16(o[i] * inverse_rms);
        const float weighted = round_bf16(args.weight[i] * normed);
        y[i] = to_bf16(weighted * silu(to_float(z[i])));
      }
    }
  }
}

}  // namespace tandem::ops::reference
