#include "ops/cuda/device_math.cuh"
#include "ops/cuda/swiglu.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ unsigned swiglu_pair(unsigned gate, unsigned up) {
  return pack_b16(round_b16(silu(low_f32(gate))) * low_f32(up), round_b16(silu(high_f32(gate))) * high_f32(up));
}

// 8 channels a thread; grid: channel blocks x tokens.
__global__ void swiglu_kernel(View<const bf16, 2> gate_up, View<bf16, 2> y, int channels) {
  const int at = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (at >= channels) return;
  const bf16* row = gate_up.data + blockIdx.y * gate_up.stride[0];
  const uint4 gate = *reinterpret_cast<const uint4*>(row + at);
  const uint4 up = *reinterpret_cast<const uint4*>(row + channels + at);
  *reinterpret_cast<uint4*>(y.data + blockIdx.y * y.stride[0] + at) =
      make_uint4(swiglu_pair(gate.x, up.x), swiglu_pair(gate.y, up.y), swiglu_pair(gate.z, up.z),
                 swiglu_pair(gate.w, up.w));
}

}  // namespace

Result<void> swiglu(const Context& context, View<const bf16, 2> gate_up, View<bf16, 2> y) {
  const auto tokens = static_cast<unsigned>(y.size(0));
  if (tokens == 0) return {};
  const auto channels = static_cast<int>(y.size(1));
  const dim3 grid((channels / 8 + kThreads - 1) / kThreads, tokens);
  swiglu_kernel<<<grid, kThreads, 0, context.stream>>>(gate_up, y, channels);
  return launched("swiglu");
}

}  // namespace tandem::ops::cuda
