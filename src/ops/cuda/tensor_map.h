#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// Describes a bf16 tensor to the copy engine: it fetches boxes whose innermost 64 elements (128 bytes) are
// swizzled as warpgroup products want them, zeros where a box leaves the tensor. sizes[0] is the dense axis;
// stride_bytes[i] belongs to sizes[i + 1]. `promotion` is what L2 fetches at least; none is right for boxes that are
// read once. Host work of about a microsecond. Error: Device.
[[nodiscard]] Result<CUtensorMap> tensor_map(const void* base, std::span<const std::uint64_t> sizes,
                                             std::span<const std::uint64_t> stride_bytes, std::span<const std::uint32_t> box,
                                             CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B);

}  // namespace tandem::ops::cuda
