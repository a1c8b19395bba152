#include <cmath>

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/tune_kernels.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kThreads = 256, kBlocks = 1024;

__global__ void fill_kernel(bf16* values, std::int64_t count, float scale, unsigned seed) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += std::int64_t{kBlocks} * kThreads) {
    unsigned x = static_cast<unsigned>(i) * 0x9e3779b1u + seed;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    values[i] = to_b16((static_cast<float>(x >> 8) / 8388608.0f - 1.0f) * scale);
  }
}

// Floats of at least zero order as their bits do.
__global__ void compare_kernel(const bf16* a, const bf16* b, std::int64_t count, unsigned* largest) {
  float difference = 0.0f, magnitude = 0.0f;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += std::int64_t{kBlocks} * kThreads) {
    const float x = to_f32(a[i]), d = fabsf(x - to_f32(b[i]));
    difference = isnan(d) ? INFINITY : fmaxf(difference, d);
    magnitude = fmaxf(magnitude, fabsf(x));
  }
  difference = warp_max(difference);
  magnitude = warp_max(magnitude);
  if (threadIdx.x % 32 != 0) return;
  atomicMax(largest, __float_as_uint(difference));
  atomicMax(largest + 1, __float_as_uint(magnitude));
}

}  // namespace

Result<void> fill_random(const Context& context, bf16* values, std::int64_t count, float scale, unsigned seed) {
  fill_kernel<<<kBlocks, kThreads, 0, context.stream>>>(values, count, scale, seed);
  return launched("fill_random");
}

Result<Difference> compare(const Context& context, const bf16* a, const bf16* b, std::int64_t count, void* scratch) {
  TANDEM_TRY(checked(cudaMemsetAsync(scratch, 0, sizeof(Difference), context.stream), "compare"));
  compare_kernel<<<kBlocks, kThreads, 0, context.stream>>>(a, b, count, static_cast<unsigned*>(scratch));
  TANDEM_TRY(launched("compare"));
  Difference result;
  TANDEM_TRY(checked(cudaMemcpyAsync(&result, scratch, sizeof result, cudaMemcpyDeviceToHost, context.stream), "compare"));
  TANDEM_TRY(checked(cudaStreamSynchronize(context.stream), "compare"));
  return result;
}

}  // namespace tandem::ops::cuda
