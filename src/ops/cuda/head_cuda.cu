#include "ops/cuda/device_math.cuh"
#include "ops/cuda/head_cuda.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

__global__ void gather_kernel(DeviceStep step, View<const bf16, 2> hidden, int first, View<bf16, 2> gathered) {
  let_next_start();
  wait_for_inputs();
  const auto* from = reinterpret_cast<const uint4*>(hidden.data +
                                                    step.logit_rows[first + blockIdx.x].token * hidden.stride[0]);
  auto* to = reinterpret_cast<uint4*>(gathered.data + blockIdx.x * gathered.stride[0]);
  for (int i = threadIdx.x; i < gathered.shape[1] / 8; i += blockDim.x) to[i] = from[i];
}

// 8 logits a thread; grid: vocabulary blocks x rows. Rows of a vocabulary that 8 does not divide start anywhere.
__global__ void widen_kernel(View<const bf16, 2> narrow, View<float, 2> logits) {
  let_next_start();
  wait_for_inputs();
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  if (at >= logits.shape[1]) return;
  if (logits.shape[1] % 8 != 0) {
    for (std::int64_t i = at; i < min(at + 8, logits.shape[1]); ++i)
      logits.data[blockIdx.y * logits.stride[0] + i] = to_f32(narrow.data[blockIdx.y * narrow.stride[0] + i]);
    return;
  }
  const uint4 word = *reinterpret_cast<const uint4*>(narrow.data + blockIdx.y * narrow.stride[0] + at);
  auto* to = reinterpret_cast<float4*>(logits.data + blockIdx.y * logits.stride[0] + at);
  to[0] = make_float4(low_f32(word.x), high_f32(word.x), low_f32(word.y), high_f32(word.y));
  to[1] = make_float4(low_f32(word.z), high_f32(word.z), low_f32(word.w), high_f32(word.w));
}

}  // namespace

Result<void> gather_hidden(const Context& context, const DeviceStep& step, View<const bf16, 2> hidden, int first,
                           View<bf16, 2> gathered) {
  const auto rows = static_cast<unsigned>(gathered.size(0));
  if (rows == 0) return {};
  return launch_early(context, "gather_hidden", gather_kernel, {dim3(rows), dim3(128)}, step, hidden, first, gathered);
}

Result<void> widen_logits(const Context& context, View<const bf16, 2> narrow, View<float, 2> logits) {
  const auto rows = static_cast<unsigned>(logits.size(0));
  if (rows == 0) return {};
  constexpr int kThreads = 256;
  const dim3 grid(static_cast<unsigned>((logits.size(1) + 8 * kThreads - 1) / (8 * kThreads)), rows);
  return launch_early(context, "widen_logits", widen_kernel, {grid, dim3(kThreads)}, narrow, logits);
}

}  // namespace tandem::ops::cuda
