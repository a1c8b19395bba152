#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/embed.h"

namespace tandem::ops::cuda {

// First kernel of every step: takes in page-table updates (block 0) and looks up embeddings.
// Reference: ops/reference/embed.cc. Moves 4 * T * H bytes.
[[nodiscard]] Result<void> embed(const Context& context, const DeviceStep& step, const EmbedArgs& args);

// Applies the step's page-table updates alone, for ranks or tests that do not embed.
[[nodiscard]] Result<void> apply_page_updates(const Context& context, const DeviceStep& step);

// ids of sampled logit rows become their slots' last-sampled ids.
[[nodiscard]] Result<void> store_last_sampled(const Context& context, const DeviceStep& step, const std::int32_t* ids);

}  // namespace tandem::ops::cuda
