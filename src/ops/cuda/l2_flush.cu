#include "ops/cuda/l2_flush.cuh"

namespace tandem::ops::cuda {
namespace {

__global__ void flush_kernel(const uint4* memory, std::size_t count, unsigned* sink) {
  unsigned mixed = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    const uint4 word = memory[i];
    mixed ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (mixed == 0x9e3779b9u) *sink = mixed;  // keeps the loads
}

}  // namespace

Result<void> flush_l2(const Context& context, const void* memory, std::size_t bytes, unsigned* sink) {
  flush_kernel<<<1024, 256, 0, context.stream>>>(static_cast<const uint4*>(memory), bytes / sizeof(uint4), sink);
  return launched("flush_l2");
}

}  // namespace tandem::ops::cuda
