#pragma once

#include "base/result.h"
#include "model/geometry.h"

namespace tandem::executor {

// Whether the CUDA kernels are built for this model; the CPU's take every geometry that the model reader takes.
// Error: Unsupported, with the field, its value and the values that work.
[[nodiscard]] Result<void> check_cuda_geometry(const model::Geometry& geometry);

}  // namespace tandem::executor
