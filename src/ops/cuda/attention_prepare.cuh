#pragma once

#include "ops/attention.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// Reference: ops/reference/attention_prepare.cc. One warp a token and head.
// 4 * 256 bytes a query or key head, the same for each value head.
[[nodiscard]] Result<void> attention_prepare(const Context& context, const DeviceStep& step,
                                             const AttentionPrepareArgs& args);

}  // namespace tandem::ops::cuda
