#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/cuda/linear.h"
#include "ops/view.h"

namespace tandem::ops::cuda {

inline constexpr int kMostStreamTokens = 8;

// Few tokens: the weight streams past the activations once, at the speed of memory. Beats cuBLASLt up to
// kMostStreamTokens (cuda_operators_bench). Reference: ops/reference/linear.cc.
// Whether a kernel exists for these widths: cols a multiple of 256 with a small quotient, and the
// activations fit shared memory.
[[nodiscard]] bool can_stream(const DeviceMatrix& weight, std::int64_t tokens);

// y[t,n] = bf16(sum_k x[t,k] * weight[n,k]); 2 * N * K bytes.
[[nodiscard]] Result<void> linear_stream(const Context& context, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y);

// The same with SwiGLU: `weight` holds the gate's rows, then as many of up; y has half its rows.
[[nodiscard]] Result<void> swiglu_stream(const Context& context, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y);

// Function attributes of this device (R1.5).
[[nodiscard]] Result<void> prepare_linear_stream();

}  // namespace tandem::ops::cuda
