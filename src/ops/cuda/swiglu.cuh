#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/view.h"

namespace tandem::ops::cuda {

// y[t,i] = bf16( bf16(silu(gate_up[t,i])) * gate_up[t, I + i] ). Reference: ops/reference/linear.cc.
// 6 * T * I bytes.
[[nodiscard]] Result<void> swiglu(const Context& context, View<const bf16, 2> gate_up, View<bf16, 2> y);

}  // namespace tandem::ops::cuda
