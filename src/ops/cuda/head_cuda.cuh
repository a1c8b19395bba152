#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/head.h"

namespace tandem::ops::cuda {

// Rows of `hidden` that logit rows [first, first + count) are made of, gathered for the head's product.
[[nodiscard]] Result<void> gather_hidden(const Context& context, const DeviceStep& step, View<const bf16, 2> hidden,
                                         int first, View<bf16, 2> gathered);

// bf16 logits to float32, in the layout of HeadArgs. 6 * R * V bytes.
[[nodiscard]] Result<void> widen_logits(const Context& context, View<const bf16, 2> narrow, View<float, 2> logits);

}  // namespace tandem::ops::cuda
