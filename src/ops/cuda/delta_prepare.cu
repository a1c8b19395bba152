#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/delta_window.cuh"
#include "ops/cuda/device_math.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int D = kDeltaHeadDim;

// One block of 128 threads a token and 128-channel head: q heads, k heads, then v heads.
// The window is only read here; advance_kernel writes it once all tokens have read.
__global__ void __launch_bounds__(D) prepare_kernel(DeviceStep step, DeltaPrepareArgs args, int first_token) {
  __shared__ float scratch[32];
  const int t = first_token + blockIdx.y;
  const TokenInfo token = step.tokens[t];
  const DeviceRow row = step.rows[token.row];
  const int head = blockIdx.x;
  const int channel = head * D + threadIdx.x;
  const float4 w = *reinterpret_cast<const float4*>(args.params.conv_weight + channel * kConvTaps);
  const auto before = [&](int back) { return input_before(args.projected, args.state, row, t, back, channel); };
  const float sum = w.x * before(3) + w.y * before(2) + w.z * before(1) + w.w * before(0);
  const float m = round_b16(silu(round_b16(sum)));
  const int keys = args.shape.key_heads;
  if (head >= 2 * keys) {
    args.v.data[t * args.v.stride[0] + (head - 2 * keys) * args.v.stride[1] + threadIdx.x] = to_b16(m);
    return;
  }
  const float unit = m * rsqrtf(block_sum(m * m, scratch) + 1e-6f);
  if (head < keys)
    args.q.data[t * args.q.stride[0] + head * args.q.stride[1] + threadIdx.x] = unit * 0.08838834764831845f;
  else
    args.k.data[t * args.k.stride[0] + (head - keys) * args.k.stride[1] + threadIdx.x] = unit;
}

// One thread a token and value head.
__global__ void gates_kernel(DeltaPrepareArgs args, int first_token, int tokens) {
  const int heads = args.shape.value_heads;
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= tokens * heads) return;
  const int t = first_token + item / heads, head = item % heads;
  const bf16* row = args.projected.data + t * args.projected.stride[0] + args.shape.channels() + args.shape.value_width();
  const float a = to_f32(row[heads + head]) + args.params.dt_bias[head];
  const float softplus = a > 20.0f ? a : log1pf(expf(a));
  args.beta.data[t * args.beta.stride[0] + head] = round_b16(1.0f / (1.0f + expf(-to_f32(row[head]))));
  args.decay.data[t * args.decay.stride[0] + head] = -expf(args.params.a_log[head]) * softplus;
}

// One thread a row and channel, after all of the row's tokens have been convolved.
__global__ void advance_kernel(DeviceStep step, DeltaPrepareArgs args, int first_row) {
  const int channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel < args.shape.channels()) advance_window(args.projected, args.state, step.rows[first_row + blockIdx.y], channel);
}

}  // namespace

Result<void> delta_prepare_rows(const Context& context, const DeviceStep& step, const DeltaPrepareArgs& args, int first_row,
                                int first_token) {
  const int tokens = step.total_tokens - first_token;
  if (tokens == 0) return {};
  const DeltaShape& shape = args.shape;
  prepare_kernel<<<dim3(2 * shape.key_heads + shape.value_heads, tokens), D, 0, context.stream>>>(step, args, first_token);
  TANDEM_TRY(launched("delta_prepare"));
  gates_kernel<<<(tokens * shape.value_heads + 255) / 256, 256, 0, context.stream>>>(args, first_token, tokens);
  TANDEM_TRY(launched("delta gates"));
  const dim3 blocks((shape.channels() + 255) / 256, step.total_rows - first_row);
  advance_kernel<<<blocks, 256, 0, context.stream>>>(step, args, first_row);
  return launched("conv window");
}

Result<void> delta_prepare(const Context& context, const DeviceStep& step, const DeltaPrepareArgs& args) {
  return delta_prepare_rows(context, step, args, 0, 0);
}

}  // namespace tandem::ops::cuda
