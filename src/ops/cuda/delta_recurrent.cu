#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/device_math.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int D = kDeltaHeadDim;
constexpr int kThreads = 512;
constexpr int kGroups = kThreads / D;  // thread groups that split the key dimension
constexpr int kKeys = D / kGroups;     // key rows a thread holds

// The delta rule as it is written (spec 3.4.7), one token after another: a block a row and value head,
// thread (group g, column c) holds S[g * kKeys .. , c] in registers. The plain twin of the chunked form.
__global__ void __launch_bounds__(kThreads) recurrent_kernel(DeviceStep step, DeltaRuleArgs args, int first_row) {
  __shared__ float query[D], key[D], reduced[kGroups][D], delta[D];
  const DeviceRow row = step.rows[first_row + blockIdx.y];
  const int head = blockIdx.x;
  const int key_head = head / (args.shape.value_heads / args.shape.key_heads);
  const int column = threadIdx.x % D, group = threadIdx.x / D;
  float* state = args.state.state + row.slot * args.state.state_stride + static_cast<std::int64_t>(head) * D * D +
                 group * kKeys * D + column;
  float s[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) s[i] = row.base_pos > 0 ? state[i * D] : 0.0f;

  for (int t = row.token_begin; t < row.token_begin + row.tokens; ++t) {
    if (threadIdx.x < D)
      query[column] = args.q.data[t * args.q.stride[0] + key_head * args.q.stride[1] + column];
    else if (threadIdx.x < 2 * D)
      key[column] = args.k.data[t * args.k.stride[0] + key_head * args.k.stride[1] + column];
    __syncthreads();
    const float factor = expf(args.decay.data[t * args.decay.stride[0] + head]);
    const float beta = args.beta.data[t * args.beta.stride[0] + head];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      s[i] *= factor;
      sum += s[i] * key[group * kKeys + i];
    }
    reduced[group][column] = sum;
    __syncthreads();
    if (group == 0) {
      float total = 0.0f;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) total += reduced[g][column];
      delta[column] = beta * (to_f32(args.v.data[t * args.v.stride[0] + head * args.v.stride[1] + column]) - total);
    }
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      s[i] += key[group * kKeys + i] * delta[column];
      sum += s[i] * query[group * kKeys + i];
    }
    reduced[group][column] = sum;
    __syncthreads();
    if (group == 0) {
      float total = 0.0f;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) total += reduced[g][column];
      args.o.data[t * args.o.stride[0] + head * args.o.stride[1] + column] = to_b16(total);
    }
  }
#pragma unroll
  for (int i = 0; i < kKeys; ++i) state[i * D] = s[i];
}

}  // namespace

Result<void> delta_recurrent_rows(const Context& context, const DeviceStep& step, const DeltaRuleArgs& args, int first_row) {
  const int rows = step.total_rows - first_row;
  if (rows == 0) return {};
  recurrent_kernel<<<dim3(args.shape.value_heads, rows), kThreads, 0, context.stream>>>(step, args, first_row);
  return launched("delta_rule");
}

Result<void> delta_rule(const Context& context, const DeviceStep& step, const DeltaRuleArgs& args) {
  return delta_recurrent_rows(context, step, args, 0);
}

}  // namespace tandem::ops::cuda
