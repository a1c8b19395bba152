#pragma once

#include <cuda_bf16.h>

#include "base/bf16.h"

// Small device helpers shared by the kernels of this folder.
namespace tandem::ops::cuda {

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ bf16 to_b16(float x) {
  return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
__device__ __forceinline__ float round_b16(float x) { return to_f32(to_b16(x)); }

// Two bf16 in one 32-bit word, the first in the low half.
__device__ __forceinline__ float low_f32(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_f32(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ unsigned pack_b16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// Sum over a block of up to 1024 threads, the same value in every thread. `scratch` holds 32 floats.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? scratch[lane] : 0.0f);
  __syncthreads();
  return x;
}

}  // namespace tandem::ops::cuda
