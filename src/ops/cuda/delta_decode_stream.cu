#include <algorithm>

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int D = kDeltaHeadDim;
constexpr int kStages = 3;
constexpr int kStateBytes = D * D * static_cast<int>(sizeof(float));
constexpr int kPasses = D / kWarps;        // key rows a warp holds of a head's state
constexpr int kMaxHeadsAKey = 4;
constexpr int kValuesAThread = kMaxHeadsAKey * D / kThreads;

struct Shared {
  alignas(16) float query[D];
  float key[D];
  float value[kMaxHeadsAKey][D];
  float partial[kWarps][2][D];
  float delta[D];
  float norms[kWarps];
  float output_norms[D / 32];
  float factor[kMaxHeadsAKey], beta[kMaxHeadsAKey];
  std::uint64_t loaded[kStages];
};

// A channel's inputs, loaded one unit ahead of their use.
struct Inputs {
  float window[kConvWindow], current;
  float4 weight;
};

// One row and key head, with the heads_a_key value heads that share it.
struct Unit {
  DeviceRow row;
  int key_head;
};

__device__ __forceinline__ Inputs load_inputs(const DeltaMixerArgs& args, const DeviceRow& row, int channel) {
  Inputs in;
  const bf16* past = args.state.conv + row.slot * args.state.conv_stride + channel * kConvWindow;
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i) in.window[i] = row.base_pos > 0 ? to_f32(past[i]) : 0.0f;
  in.current = to_f32(args.projected.data[row.token_begin * args.projected.stride[0] + channel]);
  in.weight = *reinterpret_cast<const float4*>(args.params.conv_weight + channel * kConvTaps);
  return in;
}

// Convolution and SiLU of the channel, whose window moves on.
__device__ __forceinline__ float activate(const DeltaMixerArgs& args, const DeviceRow& row, int channel, const Inputs& in) {
  bf16* past = args.state.conv + row.slot * args.state.conv_stride + channel * kConvWindow;
  past[0] = to_b16(in.window[1]);
  past[1] = to_b16(in.window[2]);
  past[2] = to_b16(in.current);
  const float sum = in.weight.x * in.window[0] + in.weight.y * in.window[1] + in.weight.z * in.window[2] + in.weight.w * in.current;
  return round_b16(silu(round_b16(sum)));
}

// Many rows: each block takes units in turn and keeps kStages states of 64 KiB on their way through shared
// memory, so that loading, arithmetic and storing overlap and memory never waits. A unit's conv window has
// one reader and writer, this block. The arithmetic is delta_decode.cu's.
__global__ void __launch_bounds__(kThreads, 1) delta_stream_kernel(DeviceStep step, DeltaMixerArgs args, int units) {
  extern __shared__ __align__(128) char dynamic[];
  auto* const states = reinterpret_cast<float*>(dynamic);  // [kStages][D][D]
  auto& shared = *reinterpret_cast<Shared*>(dynamic + kStages * kStateBytes);
  let_next_start();
  wait_for_inputs();
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int heads_a_key = args.shape.value_heads / args.shape.key_heads;
  const int key_width = args.shape.key_heads * D;
  const int my_units = (units - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int items = my_units * heads_a_key;

  const auto unit_at = [&](int n) {
    const int index = static_cast<int>(blockIdx.x) + n * static_cast<int>(gridDim.x);
    return Unit{step.rows[index / args.shape.key_heads], index % args.shape.key_heads};
  };
  const auto state_of = [&](const Unit& unit, int head) {
    return args.state.state + unit.row.slot * args.state.state_stride + static_cast<std::int64_t>(head) * D * D;
  };
  const auto qk_channel = [&](const Unit& unit) { return (thread < D ? 0 : key_width - D) + unit.key_head * D + thread; };
  const auto v_channel = [&](const Unit& unit, int i) {
    return 2 * key_width + unit.key_head * heads_a_key * D + i * kThreads + thread;
  };
  // Item i is head i % heads_a_key of unit i / heads_a_key. Thread 0 only.
  const auto begin_load = [&](int i) {
    if (i >= items) return;
    const Unit unit = unit_at(i / heads_a_key);
    std::uint64_t* const barrier = &shared.loaded[i % kStages];
    if (unit.row.base_pos == 0) {
      barrier_expect(barrier, 0);
      return;
    }
    barrier_expect(barrier, kStateBytes);
    bulk_load(states + static_cast<std::int64_t>(i % kStages) * D * D, state_of(unit, unit.key_head * heads_a_key + i % heads_a_key), kStateBytes, barrier);
  };

  if (thread == 0) {
    for (std::uint64_t& barrier : shared.loaded) barrier_init(&barrier, 1);
    barrier_init_fence();
    for (int i = 0; i < kStages; ++i) begin_load(i);
  }
  Unit next = unit_at(0);
  Inputs qk = load_inputs(args, next.row, qk_channel(next)), v[kValuesAThread];
#pragma unroll
  for (int i = 0; i < kValuesAThread; ++i)
    if (i * kThreads + thread < heads_a_key * D) v[i] = load_inputs(args, next.row, v_channel(next, i));
  __syncthreads();

  for (int n = 0; n < my_units; ++n) {
    const Unit unit = next;
    const bf16* const u = args.projected.data + unit.row.token_begin * args.projected.stride[0];
    const float activated = activate(args, unit.row, qk_channel(unit), qk);
    const float squares = warp_sum(activated * activated);
    if (lane == 0) shared.norms[warp] = squares;
#pragma unroll
    for (int i = 0; i < kValuesAThread; ++i)
      if (i * kThreads + thread < heads_a_key * D)
        shared.value[0][i * kThreads + thread] = activate(args, unit.row, v_channel(unit, i), v[i]);
    if (thread < heads_a_key) {
      const int head = unit.key_head * heads_a_key + thread;
      const int gates = args.shape.channels() + args.shape.value_width();
      const float a = to_f32(u[gates + args.shape.value_heads + head]) + args.params.dt_bias[head];
      const float softplus = a > 20.0f ? a : log1pf(__expf(a));
      shared.factor[thread] = __expf(-__expf(args.params.a_log[head]) * softplus);
      shared.beta[thread] = round_b16(sigmoid(to_f32(u[gates + head])));
    }
    __syncthreads();
    {
      const int half = thread < D ? 0 : kWarps / 2;
      const float sum = shared.norms[half] + shared.norms[half + 1] + shared.norms[half + 2] + shared.norms[half + 3];
      const float unit_length = activated * rsqrtf(sum + 1e-6f);
      if (thread < D)
        shared.query[thread] = unit_length * 0.08838834764831845f;  // 128^-1/2
      else
        shared.key[thread - D] = unit_length;
    }
    if (n + 1 < my_units) {
      next = unit_at(n + 1);
      qk = load_inputs(args, next.row, qk_channel(next));
#pragma unroll
      for (int i = 0; i < kValuesAThread; ++i)
        if (i * kThreads + thread < heads_a_key * D) v[i] = load_inputs(args, next.row, v_channel(next, i));
    }
    __syncthreads();
    float query_key = 0.0f;
#pragma unroll
    for (int i = lane; i < D; i += 32) query_key += shared.query[i] * shared.key[i];
    query_key = warp_sum(query_key);

    for (int h = 0; h < heads_a_key; ++h) {
      const int item = n * heads_a_key + h;
      const int stage = item % kStages;
      const int head = unit.key_head * heads_a_key + h;
      float* const tile = states + static_cast<std::int64_t>(stage) * D * D + warp * D + lane * 4;
      float z = 0.0f, norm_weight = 0.0f;
      if (thread < D) {
        z = to_f32(u[args.shape.channels() + head * D + thread]);
        norm_weight = args.params.norm_weight[thread];
      }
      barrier_wait(&shared.loaded[stage], (item / kStages) & 1);
      float4 s[kPasses];
      float4 key_sum = make_float4(0, 0, 0, 0), query_sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        s[i] = unit.row.base_pos > 0 ? *reinterpret_cast<const float4*>(tile + i * kWarps * D) : make_float4(0, 0, 0, 0);
        const float k = shared.key[warp + i * kWarps], q = shared.query[warp + i * kWarps];
        key_sum.x += s[i].x * k, key_sum.y += s[i].y * k, key_sum.z += s[i].z * k, key_sum.w += s[i].w * k;
        query_sum.x += s[i].x * q, query_sum.y += s[i].y * q, query_sum.z += s[i].z * q, query_sum.w += s[i].w * q;
      }
      *reinterpret_cast<float4*>(&shared.partial[warp][0][lane * 4]) = key_sum;
      *reinterpret_cast<float4*>(&shared.partial[warp][1][lane * 4]) = query_sum;
      __syncthreads();
      const float factor = shared.factor[h];
      float o = 0.0f;
      if (thread < D) {
        float ks = 0.0f, qs = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          ks += shared.partial[w][0][thread];
          qs += shared.partial[w][1][thread];
        }
        const float d = shared.beta[h] * (shared.value[h][thread] - factor * ks);
        o = round_b16(factor * qs + query_key * d);
        shared.delta[thread] = d;
        const float sum = warp_sum(o * o);
        if (lane == 0) shared.output_norms[warp] = sum;
      }
      __syncthreads();
      const float4 d = *reinterpret_cast<const float4*>(&shared.delta[lane * 4]);
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const float k = shared.key[warp + i * kWarps];
        *reinterpret_cast<float4*>(tile + i * kWarps * D) =
            make_float4(factor * s[i].x + k * d.x, factor * s[i].y + k * d.y, factor * s[i].z + k * d.z, factor * s[i].w + k * d.w);
      }
      async_fence();
      if (thread < D) {
        const float sum = shared.output_norms[0] + shared.output_norms[1] + shared.output_norms[2] + shared.output_norms[3];
        const float r = round_b16(o * rsqrtf(sum * (1.0f / D) + args.eps));
        args.y.data[unit.row.token_begin * args.y.stride[0] + head * args.y.stride[1] + thread] =
            to_b16(round_b16(norm_weight * r) * silu(z));
      }
      __syncthreads();
      if (thread == 0) {
        // The stage of the item before: its store has had this item's time to read it.
        if (item > 0) {
          bulk_stores_read();
          begin_load(item - 1 + kStages);
        }
        bulk_store(state_of(unit, head), states + static_cast<std::int64_t>(stage) * D * D, kStateBytes);
      }
    }
  }
  if (thread == 0) bulk_stores_done();
}

constexpr int kSharedBytes = kStages * kStateBytes + static_cast<int>(sizeof(Shared));

}  // namespace

Result<void> prepare_delta_stream() {
  return checked(cudaFuncSetAttribute(delta_stream_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "delta_decode");
}

Result<void> delta_decode_stream(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  const int units = step.decode_rows * args.shape.key_heads;
  return launch_early(context, "delta_decode", delta_stream_kernel,
                      {dim3(static_cast<unsigned>(std::min(units, context.multiprocessors))), dim3(kThreads), kSharedBytes}, step, args, units);
}

}  // namespace tandem::ops::cuda
