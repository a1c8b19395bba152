#pragma once

#include <span>

#include "ops/gemm_table.h"

namespace tandem::ops::cuda {

// The algorithm tables of src/ops/cuda/gemm_tables, put into this library when it is built (cmake/TandemCuda.cmake).
[[nodiscard]] std::span<const GemmTableFile> gemm_tables();

}  // namespace tandem::ops::cuda
