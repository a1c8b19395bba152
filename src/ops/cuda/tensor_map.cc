#include "ops/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <array>

namespace tandem::ops::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, looked up once: the backend does not link the driver's library.
Encode encoder() {
  static const Encode found = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult status{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &status) != cudaSuccess ||
        status != cudaDriverEntryPointSuccess)
      address = nullptr;
    return reinterpret_cast<Encode>(address);
  }();
  return found;
}

}  // namespace

Result<CUtensorMap> tensor_map(const void* base, std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> stride_bytes,
                               std::span<const std::uint32_t> box, CUtensorMapL2promotion promotion) {
  const Encode encode = encoder();
  if (!encode) return fail(ErrorKind::Device, "the driver has no cuTensorMapEncodeTiled; CUDA 12 or newer is needed");
  CUtensorMap map;
  constexpr std::array<std::uint32_t, 5> kDense = {1, 1, 1, 1, 1};
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(sizes.size()), const_cast<void*>(base),
                                 sizes.data(), stride_bytes.data(), box.data(), kDense.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) return fail(ErrorKind::Device, "cuTensorMapEncodeTiled: error " + std::to_string(status));
  return map;
}

}  // namespace tandem::ops::cuda
