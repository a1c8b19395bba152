#include "ops/reference/operators.h"
#include "ops/reference/scalar_math.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {

void linear(const LinearArgs& args) {
  const std::int64_t tokens = args.x.size(0);
  const std::int64_t inputs = args.weight.cols;
  const auto* weight = static_cast<const bf16*>(args.weight.packed);
  std::vector<float> x(static_cast<std::size_t>(tokens * inputs));
  for (std::int64_t t = 0; t < tokens; ++t) to_floats(x.data() + t * inputs, args.x.row(t), inputs);
  std::vector<float> w(static_cast<std::size_t>(inputs));
  for (std::int64_t n = 0; n < args.weight.rows; ++n) {
    to_floats(w.data(), weight + n * inputs, inputs);
    for (std::int64_t t = 0; t < tokens; ++t)
      args.y.row(t)[n] = to_bf16(dot(x.data() + t * inputs, w.data(), inputs));
  }
}

void linear_swiglu(const LinearSwigluArgs& args) {
  linear({.x = args.x, .weight = args.weight, .y = args.gate_up});
  const std::int64_t channels = args.y.size(1);
  for (std::int64_t t = 0; t < args.x.size(0); ++t) {
    const bf16* gate = args.gate_up.row(t);
    const bf16* up = gate + channels;
    bf16* y = args.y.row(t);
    for (std::int64_t i = 0; i < channels; ++i)
      y[i] = to_bf16(round_bf16(silu(to_float(gate[i]))) * to_float(up[i]));
  }
}

}  // namespace tandem::ops::reference
