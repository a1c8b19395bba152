#include <cooperative_groups.h>

#include <utility>

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
};

__device__ __forceinline__ ConvTap load_tap(const bf16* u, const bf16* window, int channel, bool has_past) {
  ConvTap tap;
  const bf16* past = window + channel * kConvWindow;
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i) tap.window[i] = has_past ? to_f32(past[i]) : 0.0f;
  tap.current = to_f32(u[channel]);
  return tap;
}

// bf(silu(bf(conv)))
__device__ __forceinline__ float activate(const ConvTap& tap, const float4& w) {
  return round_b16(silu(round_b16(w.x * tap.window[0] + w.y * tap.window[1] + w.z * tap.window[2] + w.w * tap.current)));
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
  __shared__ float squares[kSlices];  // of the head's slices, each written by its block

  let_next_start();
  const cg::cluster_group cluster = cg::this_cluster();
  auto all_run = cluster.barrier_arrive();
  const int heads_a_key = args.shape.value_heads / args.shape.key_heads;
  const int slice = blockIdx.x % kSlices;
  const int head = blockIdx.x / kSlices;
  const int key_head = head / heads_a_key;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int column = (lane % kLanesARow) * 4;
  const int first_row = warp * kRowsAPass + lane / kLanesARow;
  // Convolution: threads 0..127 the query's channels, 128..255 the key's; the value's slice after that.
  const int key_width = args.shape.key_heads * D;
  const int qk_channel = (thread < D ? 0 : key_width - D) + key_head * D + thread;
  const int v_channel = 2 * key_width + head * D + slice * kColumns + thread;
  const bool has_column = thread < kColumns;
  const int out_column = slice * kColumns + thread;

  // Weights first, while the kernel before may still run; then everything else at once, so that a row waits
  // for memory once and not step by step.
  const auto conv_weight = [&](int channel) { return *reinterpret_cast<const float4*>(args.params.conv_weight + channel * kConvTaps); };
  const float4 qk_weight = conv_weight(qk_channel), v_weight = has_column ? conv_weight(v_channel) : float4{};
  const float norm_weight = has_column ? args.params.norm_weight[out_column] : 0.0f;
  const float bias = args.params.dt_bias[head], rate = -__expf(args.params.a_log[head]);
  wait_for_inputs();
  const DeviceRow row = step.rows[blockIdx.y];
  const bool has_past = row.base_pos > 0;
  const bf16* const u = args.projected.data + row.token_begin * args.projected.stride[0];
  bf16* const window = args.state.conv + row.slot * args.state.conv_stride;
  const int gates = args.shape.channels() + args.shape.value_width();
  float* const state = args.state.state + row.slot * args.state.state_stride + static_cast<std::int64_t>(head) * D * D +
                       slice * kColumns + column;
  float4 s[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i)
    s[i] = has_past ? *reinterpret_cast<const float4*>(state + (first_row + i * kWarps * kRowsAPass) * D)
                    : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const ConvTap qk = load_tap(u, window, qk_channel, has_past);
  const ConvTap v = has_column ? load_tap(u, window, v_channel, has_past) : ConvTap{};
  const float z = has_column ? to_f32(u[args.shape.channels() + head * D + out_column]) : 0.0f;
  const float gate_b = to_f32(u[gates + head]), a = to_f32(u[gates + args.shape.value_heads + head]) + bias;

  const float activated = activate(qk, qk_weight);
  if (has_column) value[thread] = activate(v, v_weight);
  const float warp_squares = warp_sum(activated * activated);
  if (lane == 0) norms[warp] = warp_squares;
  __syncthreads();
  {
    const int half = thread < D ? 0 : kWarps / 2;
    const float sum = norms[half] + norms[half + 1] + norms[half + 2] + norms[half + 3];
    const float unit = activated * rsqrtf(sum + 1e-6f);
    if (thread < D)
      query[thread] = unit * 0.08838834764831845f;  // 128^-1/2
    else
      key[thread - D] = unit;
  }
  const float beta = round_b16(sigmoid(gate_b));
  const float factor = __expf(rate * (a > 20.0f ? a : log1pf(__expf(a))));
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

  // Gated norm over the head's 128 outputs: each slice's sum of squares goes to all slices of the head.
  if (thread < kColumns) {
    const float sum = warp_sum(o * o);
    if (lane == 0) norms[warp] = sum;
  }
  cluster.barrier_wait(std::move(all_run));  // before the first write into another block
  __syncthreads();
  if (thread < kSlices) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kColumns / 32; ++w) sum += norms[w];
    *cluster.map_shared_rank(&squares[slice], cluster.block_rank() / kSlices * kSlices + thread) = sum;
  }
  cluster.sync();  // every block has read the conv window and sent its squares
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kSlices; ++i) sum += squares[i];
  if (has_column) {
    const float r = round_b16(o * rsqrtf(sum * (1.0f / D) + args.eps));
    args.y.data[row.token_begin * args.y.stride[0] + head * args.y.stride[1] + out_column] = to_b16(round_b16(norm_weight * r) * silu(z));
    advance(window, v_channel, v);
  }
  if (cluster.block_rank() == 0) advance(window, qk_channel, qk);
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
  if (step.decode_rows * args.shape.key_heads >= 48 && heads_a_key <= 4)
    return delta_decode_stream(context, step, args);
  const int blocks = step.decode_rows * args.shape.value_heads;
  if (blocks * 2 <= context.multiprocessors && heads_a_key <= 2) return launch<32>(context, step, args);
  if (blocks <= context.multiprocessors && heads_a_key <= 4) return launch<64>(context, step, args);
  return launch<128>(context, step, args);
}

}  // namespace tandem::ops::cuda
