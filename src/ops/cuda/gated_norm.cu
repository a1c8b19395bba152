#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/device_math.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kWarps = 8;

// One warp a token and head, four neighbouring channels a lane.
__global__ void gated_norm_kernel(GatedNormArgs args, int heads, int work) {
  const int item = blockIdx.x * kWarps + (threadIdx.x >> 5);
  if (item >= work) return;
  const int t = item / heads, head = item % heads, at = (threadIdx.x & 31) * 4;
  const uint2 o = *reinterpret_cast<const uint2*>(args.o.data + t * args.o.stride[0] + head * args.o.stride[1] + at);
  const uint2 z = *reinterpret_cast<const uint2*>(args.z.data + t * args.z.stride[0] + head * args.z.stride[1] + at);
  const float4 w = *reinterpret_cast<const float4*>(args.weight + at);
  const float x[4] = {low_f32(o.x), high_f32(o.x), low_f32(o.y), high_f32(o.y)};
  const float scale = rsqrtf(warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]) * (1.0f / kDeltaHeadDim) + args.eps);
  const float y0 = round_b16(w.x * round_b16(x[0] * scale)) * silu(low_f32(z.x));
  const float y1 = round_b16(w.y * round_b16(x[1] * scale)) * silu(high_f32(z.x));
  const float y2 = round_b16(w.z * round_b16(x[2] * scale)) * silu(low_f32(z.y));
  const float y3 = round_b16(w.w * round_b16(x[3] * scale)) * silu(high_f32(z.y));
  *reinterpret_cast<uint2*>(args.y.data + t * args.y.stride[0] + head * args.y.stride[1] + at) =
      make_uint2(pack_b16(y0, y1), pack_b16(y2, y3));
}

}  // namespace

Result<void> gated_norm(const Context& context, const GatedNormArgs& args) {
  const auto heads = static_cast<int>(args.o.size(1));
  const int work = static_cast<int>(args.o.size(0)) * heads;
  if (work == 0) return {};
  gated_norm_kernel<<<(work + kWarps - 1) / kWarps, kWarps * 32, 0, context.stream>>>(args, heads, work);
  return launched("gated_norm");
}

}  // namespace tandem::ops::cuda
