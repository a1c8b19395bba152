#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/norm.cuh"

namespace tandem::ops::cuda {
namespace {

// One block a token, 8 elements (16 bytes) a thread. The row stays in registers between the two passes.
// kAdd: x is the residual, which takes in `partial` first and is written back.
template <bool kAdd>
__global__ void norm_kernel(bf16* x, std::int64_t x_stride, const bf16* partial, std::int64_t partial_stride,
                            const float* weight, bf16* y, std::int64_t y_stride, int hidden, float eps) {
  __shared__ float scratch[32];
  const int at = threadIdx.x * 8;
  let_next_start();
  wait_for_inputs();
  float value[8] = {};
  if (at < hidden) {
    auto* row = reinterpret_cast<uint4*>(x + blockIdx.x * x_stride + at);
    const uint4 mine = *row;
    const unsigned words[4] = {mine.x, mine.y, mine.z, mine.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      value[2 * i] = low_f32(words[i]);
      value[2 * i + 1] = high_f32(words[i]);
    }
    if constexpr (kAdd) {
      const uint4 other = *reinterpret_cast<const uint4*>(partial + blockIdx.x * partial_stride + at);
      const unsigned addends[4] = {other.x, other.y, other.z, other.w};
      unsigned sums[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[i] = pack_b16(value[2 * i] + low_f32(addends[i]), value[2 * i + 1] + high_f32(addends[i]));
        value[2 * i] = low_f32(sums[i]);
        value[2 * i + 1] = high_f32(sums[i]);
      }
      *row = make_uint4(sums[0], sums[1], sums[2], sums[3]);
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares += value[i] * value[i];
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(hidden) + eps);
  if (at >= hidden) return;
  const float4 w0 = *reinterpret_cast<const float4*>(weight + at);
  const float4 w1 = *reinterpret_cast<const float4*>(weight + at + 4);
  const float w[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
  unsigned out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[i] = pack_b16(value[2 * i] * scale * (1.0f + w[2 * i]), value[2 * i + 1] * scale * (1.0f + w[2 * i + 1]));
  *reinterpret_cast<uint4*>(y + blockIdx.x * y_stride + at) = make_uint4(out[0], out[1], out[2], out[3]);
}

// Whole warps, 8 elements a thread: hidden sizes up to 8192.
unsigned threads_for(std::int64_t hidden) { return static_cast<unsigned>((hidden / 8 + 31) / 32 * 32); }

}  // namespace

Result<void> norm(const Context& context, const NormArgs& args) {
  const auto tokens = static_cast<unsigned>(args.x.size(0));
  if (tokens == 0) return {};
  const std::int64_t hidden = args.x.size(1);
  return launch_early(context, "norm", norm_kernel<false>, {dim3(tokens), dim3(threads_for(hidden))},
                      const_cast<bf16*>(args.x.data), args.x.stride[0], nullptr, 0, args.weight, args.y.data, args.y.stride[0],
                      static_cast<int>(hidden), args.eps);
}

Result<void> add_norm(const Context& context, const ReduceAddNormArgs& args) {
  const auto tokens = static_cast<unsigned>(args.residual.size(0));
  if (tokens == 0) return {};
  const std::int64_t hidden = args.residual.size(1);
  return launch_early(context, "add_norm", norm_kernel<true>, {dim3(tokens), dim3(threads_for(hidden))}, args.residual.data,
                      args.residual.stride[0], args.partial.data, args.partial.stride[0], args.weight, args.y.data,
                      args.y.stride[0], static_cast<int>(hidden), args.eps);
}

}  // namespace tandem::ops::cuda
