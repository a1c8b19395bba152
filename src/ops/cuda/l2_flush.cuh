#pragma once

#include <cstddef>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// For benches: reads `bytes` of memory, so that the L2 holds nothing that is measured next, and nothing that
// has to be written back while it is (a memset would leave the L2 full of such lines).
[[nodiscard]] Result<void> flush_l2(const Context& context, const void* memory, std::size_t bytes, unsigned* sink);

}  // namespace tandem::ops::cuda
