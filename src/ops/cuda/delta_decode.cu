#include <cooperative_groups.h>

#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int D = kDeltaHeadDim;

struct ConvTap {
  float window[kConvWindow];
  float current;
  float activated;  // bf(silu(bf(conv)))
};

__device__ __forceinline__ ConvTap convolve(const DeltaMixerArgs& args, const bf16* u, const bf16* window, int channel,
                                            bool has_past) {
  ConvTap tap;
  const bf16* past = window + channel * kConvWindow;
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i) tap.window[i] = has_past ? to_f32(past[i]) : 0.0f;
  tap.current = to_f32(u[channel]);
  const float4 w = *reinterpret_cast<const float4*>(args.params.conv_weight + channel * kConvTaps);
  const float sum = w.x * tap.window[0] + w.y * tap.window[1] + w.z * tap.window[2] + w.w * tap.current;
  tap.activated = round_b16(silu(round_b16(sum)));
  return tap;
}

__device__ __forceinline__ void advance(bf16* window, int channel, const ConvTap& tap) {
  bf16* past = window + channel * kConvWindow;
  past[0] = to_b16(tap.window[1]);
  past[1] = to_b16(tap.window[2]);
  past[2] = to_b16(tap.current);
}

// One block a row, value head and slice of kColumns value dimensions; the blocks of one key head form a
// cluster, because all of them read the key head's conv window and only one may advance it, after all
// have read. The slice of the state [128, kColumns] lives in registers between its one read and its one
// write. Warp w and lane l hold rows (w * kRowsAPass + l / kLanesARow) + i * kWarps * kRowsAPass and four
// neighbouring columns.
//
// With S the old state and a the decay factor, the updated state's answer needs no second pass:
//   d = beta (v - a S^T k),  o = a S^T q + (q . k) d,  S' = a S + k d^T.
template <int kColumns>
__global__ void __launch_bounds__(kThreads) delta_decode_kernel(DeviceStep step, DeltaMixerArgs args) {
  constexpr int kSlices = D / kColumns;
  constexpr int kLanesARow = kColumns / 4;
  constexpr int kRowsAPass = 32 / kLanesARow;
  constexpr int kPasses = D / (kWarps * kRowsAPass);

  __shared__ float query[D], key[D], value[kColumns];
  __shared__ float partial[kWarps][2][kColumns];
  __shared__ float norms[kWarps];
  __shared__ float squares;

  let_next_start();
  wait_for_inputs();
  const cg::cluster_group cluster = cg::this_cluster();
  const int heads_a_key = args.shape.value_heads / args.shape.key_heads;
  const int slice = blockIdx.x % kSlices;
  const int head = blockIdx.x / kSlices;
  const int key_head = head / heads_a_key;
  const DeviceRow row = step.rows[blockIdx.y];
  const bool has_past = row.base_pos > 0;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int column = (lane % kLanesARow) * 4;
  const int first_row = warp * kRowsAPass + lane / kLanesARow;

  float* state = args.state.state + row.slot * args.state.state_stride + static_cast<std::int64_t>(head) * D * D +
                 slice * kColumns + column;
  float4 s[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
    s[i] = has_past ? *reinterpret_cast<const float4*>(state + (first_row + i * kWarps * kRowsAPass) * D)
                    : make_float4(0.0f, 0.0f, 0.0f, 0.0f);

  // Convolution: threads 0..127 the query's channels, 128..255 the key's; the value's slice after that.
  const bf16* u = args.projected.data + row.token_begin * args.projected.stride[0];
  bf16* window = args.state.conv + row.slot * args.state.conv_stride;
  const int key_width = args.shape.key_heads * D;
  const int qk_channel = (thread < D ? 0 : key_width - D) + key_head * D + thread;
  const int v_channel = 2 * key_width + head * D + slice * kColumns + thread;
  const ConvTap qk = convolve(args, u, window, qk_channel, has_past);
  ConvTap v{};
  if (thread < kColumns) {
    v = convolve(args, u, window, v_channel, has_past);
    value[thread] = v.activated;
  }
  const float warp_squares = warp_sum(qk.activated * qk.activated);
  if (lane == 0) norms[warp] = warp_squares;
  __syncthreads();
  {
    const int half = thread < D ? 0 : kWarps / 2;
    const float sum = norms[half] + norms[half + 1] + norms[half + 2] + norms[half + 3];
    const float unit = qk.activated * rsqrtf(sum + 1e-6f);
    if (thread < D)
      query[thread] = unit * 0.08838834764831845f;  // 128^-1/2
    else
      key[thread - D] = unit;
  }
  const int gates = args.shape.channels() + args.shape.value_width();
  const float beta = round_b16(sigmoid(to_f32(u[gates + head])));
  const float a = to_f32(u[gates + args.shape.value_heads + head]) + args.params.dt_bias[head];
  const float softplus = a > 20.0f ? a : log1pf(__expf(a));
  const float factor = __expf(-__expf(args.params.a_log[head]) * softplus);
  __syncthreads();

  float query_key = 0.0f;
#pragma unroll
  for (int i = lane; i < D; i += 32) query_key += query[i] * key[i];
  query_key = warp_sum(query_key);

  float4 key_sum = make_float4(0, 0, 0, 0), query_sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int r = first_row + i * kWarps * kRowsAPass;
    const float k = key[r], q = query[r];
    key_sum.x += s[i].x * k, key_sum.y += s[i].y * k, key_sum.z += s[i].z * k, key_sum.w += s[i].w * k;
    query_sum.x += s[i].x * q, query_sum.y += s[i].y * q, query_sum.z += s[i].z * q, query_sum.w += s[i].w * q;
  }
#pragma unroll
  for (int offset = kLanesARow; offset < 32; offset <<= 1) {
    key_sum.x += __shfl_xor_sync(0xffffffffu, key_sum.x, offset);
    key_sum.y += __shfl_xor_sync(0xffffffffu, key_sum.y, offset);
    key_sum.z += __shfl_xor_sync(0xffffffffu, key_sum.z, offset);
    key_sum.w += __shfl_xor_sync(0xffffffffu, key_sum.w, offset);
    query_sum.x += __shfl_xor_sync(0xffffffffu, query_sum.x, offset);
    query_sum.y += __shfl_xor_sync(0xffffffffu, query_sum.y, offset);
    query_sum.z += __shfl_xor_sync(0xffffffffu, query_sum.z, offset);
    query_sum.w += __shfl_xor_sync(0xffffffffu, query_sum.w, offset);
  }
  if (lane < kLanesARow) {
    *reinterpret_cast<float4*>(&partial[warp][0][column]) = key_sum;
    *reinterpret_cast<float4*>(&partial[warp][1][column]) = query_sum;
  }
  __syncthreads();

  // d and o of every column, by the first kColumns threads; d replaces the value in shared memory.
  float o = 0.0f;
  if (thread < kColumns) {
    float ks = 0.0f, qs = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      ks += partial[w][0][thread];
      qs += partial[w][1][thread];
    }
    const float d = beta * (value[thread] - factor * ks);
    o = round_b16(factor * qs + query_key * d);
    value[thread] = d;
  }
  __syncthreads();
  {
    const float4 d = *reinterpret_cast<const float4*>(&value[column]);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int r = first_row + i * kWarps * kRowsAPass;
      const float k = key[r];
      *reinterpret_cast<float4*>(state + r * D) =
          make_float4(factor * s[i].x + k * d.x, factor * s[i].y + k * d.y, factor * s[i].z + k * d.z,
                      factor * s[i].w + k * d.w);
    }
  }

  // Gated norm over the head's 128 outputs; slices meet through the cluster's shared memory.
  if (thread < kColumns) {
    const float sum = warp_sum(o * o);
    if (lane == 0) norms[warp] = sum;
  }
  __syncthreads();
  if (thread == 0) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kColumns / 32; ++w) sum += norms[w];
    squares = sum;
  }
  cluster.sync();  // every block has read the conv window and published its squares
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kSlices; ++i)
    sum += *cluster.map_shared_rank(&squares, cluster.block_rank() / kSlices * kSlices + i);
  if (thread < kColumns) {
    const int at = slice * kColumns + thread;
    const float z = to_f32(u[args.shape.channels() + head * D + at]);
    const float r = round_b16(o * rsqrtf(sum * (1.0f / D) + args.eps));
    const float scaled = round_b16(args.params.norm_weight[at] * r);
    args.y.data[row.token_begin * args.y.stride[0] + head * args.y.stride[1] + at] = to_b16(scaled * silu(z));
    advance(window, v_channel, v);
  }
  if (cluster.block_rank() == 0) advance(window, qk_channel, qk);
  if constexpr (kSlices > 1) cluster.sync();  // nobody leaves while a peer may still read its squares
}

template <int kColumns>
Result<void> launch(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  const auto slices = static_cast<unsigned>(D / kColumns);
  return launch_early(context, "delta_decode", delta_decode_kernel<kColumns>,
                      {dim3(static_cast<unsigned>(args.shape.value_heads) * slices, static_cast<unsigned>(step.decode_rows)), dim3(kThreads), 0,
                       static_cast<unsigned>(args.shape.value_heads / args.shape.key_heads) * slices},
                      step, args);
}

}  // namespace

Result<void> delta_decode(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  if (step.decode_rows == 0) return {};
  // Few rows: narrower slices keep every multiprocessor loading; a cluster has at most 8 blocks.
  const int heads_a_key = args.shape.value_heads / args.shape.key_heads;
  if (step.decode_rows * args.shape.key_heads >= context.multiprocessors / 2 && heads_a_key <= 4)
    return delta_decode_stream(context, step, args);
  const int blocks = step.decode_rows * args.shape.value_heads;
  if (blocks * 2 <= context.multiprocessors && heads_a_key <= 2) return launch<32>(context, step, args);
  if (blocks <= context.multiprocessors) return launch<64>(context, step, args);
  return launch<128>(context, step, args);
}

}  // namespace tandem::ops::cuda
