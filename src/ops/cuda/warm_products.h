#pragma once

#include <memory>
#include <span>

#include "ops/cuda/linear.h"

namespace tandem::ops::cuda {

// Runs every product that `gemm` was prepared for once, on zeros. cuBLASLt loads a kernel into the device when it is
// first launched, which takes 2 to 5 ms for each (H200, CUDA 13.0): without this, in the middle of everybody's streams.
//
// One weight of each shape, at every size from which Gemm may take another algorithm; the head (limits.vocab rows) only at
// sizes that it is run with. Takes memory for the largest product's input and output, and frees it before it returns;
// scratch that is allocated later needs more. Thread: the rank's, before `ready`.
// Errors: Capacity, Device.
[[nodiscard]] Result<void> warm_products(const Context& context, Gemm& gemm, std::span<const std::unique_ptr<DeviceMatrix>> weights,
                                         const StepLimits& limits);

}  // namespace tandem::ops::cuda
