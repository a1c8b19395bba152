#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/norm.h"

namespace tandem::ops::cuda {

// Reference: ops/reference/norm.cc. One block a token; 4 * T * H bytes.
[[nodiscard]] Result<void> norm(const Context& context, const NormArgs& args);

// The local half of ReduceAddNorm, after the all-reduce: residual += partial, y = norm(residual).
// 8 * T * H bytes: partial and residual in, residual and y out.
[[nodiscard]] Result<void> add_norm(const Context& context, const ReduceAddNormArgs& args);

}  // namespace tandem::ops::cuda
