#include <algorithm>

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kComputing = 256;          // threads that compute; one warp more moves the states
constexpr int kThreads = kComputing + 32;
constexpr int kWarps = kComputing / 32;
constexpr int D = kDeltaHeadDim;
constexpr int kStages = 3;
constexpr int kStateBytes = D * D * static_cast<int>(sizeof(float));
constexpr int kPasses = D / kWarps;        // key rows a warp holds of a head's state
constexpr int kMaxHeadsAKey = 4;
constexpr int kValuesAThread = kMaxHeadsAKey * D / kComputing;

struct Shared {
  alignas(16) float query[D];
  float key[D];
  float value[kMaxHeadsAKey][D];
  float partial[kWarps][2][D];
  float delta[D];
  float norms[kWarps];
  float output_norms[D / 32];
  float factor[kMaxHeadsAKey], beta[kMaxHeadsAKey];
  std::uint64_t loaded[kStages], updated[kStages];
};

// The threads that compute meet.
__device__ __forceinline__ void computing_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kComputing) : "memory"); }

// A channel's inputs, loaded one unit ahead of their use: as they lie in memory, because a conversion beside
// the load would wait for it.
struct Inputs {
  bf16 window[kConvWindow], current;
  float4 weight;
};

struct Gates {
  bf16 b, a;
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
  for (int i = 0; i < kConvWindow; ++i) in.window[i] = past[i];
  in.current = args.projected.data[row.token_begin * args.projected.stride[0] + channel];
  in.weight = *reinterpret_cast<const float4*>(args.params.conv_weight + channel * kConvTaps);
  return in;
}

// Convolution and SiLU of the channel, whose window moves on.
__device__ __forceinline__ float activate(const DeltaMixerArgs& args, const DeviceRow& row, int channel, const Inputs& in) {
  const bool has_past = row.base_pos > 0;
  const bf16 zero{};
  const bf16 first = has_past ? in.window[0] : zero, second = has_past ? in.window[1] : zero, third = has_past ? in.window[2] : zero;
  bf16* past = args.state.conv + row.slot * args.state.conv_stride + channel * kConvWindow;
  past[0] = second, past[1] = third, past[2] = in.current;
  const float sum = in.weight.x * to_f32(first) + in.weight.y * to_f32(second) + in.weight.z * to_f32(third) + in.weight.w * to_f32(in.current);
  return round_b16(silu(round_b16(sum)));
}

// Many rows: each block takes units in turn and keeps kStages states of 64 KiB on their way through shared
// memory, so that loading, arithmetic and storing overlap and memory never waits. One warp does nothing but
// move states, so that no arithmetic waits for a copy to be issued. A unit's conv window has one reader and
// writer, this block. The arithmetic is delta_decode.cu's.
__global__ void __launch_bounds__(kThreads, 1) delta_stream_kernel(DeviceStep step, DeltaMixerArgs args, int units) {
  extern __shared__ __align__(128) char dynamic[];
  auto* const states = reinterpret_cast<float*>(dynamic);  // [kStages][D][D]
  auto& shared = *reinterpret_cast<Shared*>(dynamic + kStages * kStateBytes);
  let_next_start();
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int heads_a_key = args.shape.value_heads / args.shape.key_heads;
  const int key_width = args.shape.key_heads * D;
  const int my_units = (units - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int items = my_units * heads_a_key;

  const auto unit_at = [&](int n) {
    const int index = static_cast<int>(blockIdx.x) + n * static_cast<int>(gridDim.x);
    return Unit{step.rows[index / args.shape.key_heads], index % args.shape.key_heads};
  };
  if (thread == 0) {
    for (std::uint64_t& barrier : shared.loaded) barrier_init(&barrier, 1);
    for (std::uint64_t& barrier : shared.updated) barrier_init(&barrier, kComputing);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_inputs();

  if (warp == kWarps) {
    if (lane > 0) return;
    // Item i is head i % heads_a_key of unit i / heads_a_key.
    const auto state_of = [&](const Unit& unit, int i) {
      return args.state.state + unit.row.slot * args.state.state_stride + static_cast<std::int64_t>(unit.key_head * heads_a_key + i % heads_a_key) * D * D;
    };
    const auto begin_load = [&](int i, const Unit& unit) {
      std::uint64_t* const barrier = &shared.loaded[i % kStages];
      barrier_expect(barrier, unit.row.base_pos > 0 ? kStateBytes : 0);
      if (unit.row.base_pos > 0) bulk_load(states + static_cast<std::int64_t>(i % kStages) * D * D, state_of(unit, i), kStateBytes, barrier);
    };
    for (int i = 0; i < min(kStages, items); ++i) begin_load(i, unit_at(i / heads_a_key));
    for (int i = 0; i < items; ++i) {
      const int ahead = i + kStages;
      const Unit unit = unit_at(i / heads_a_key), next = ahead < items ? unit_at(ahead / heads_a_key) : Unit{};
      barrier_wait(&shared.updated[i % kStages], (i / kStages) & 1);
      bulk_store(state_of(unit, i), states + static_cast<std::int64_t>(i % kStages) * D * D, kStateBytes);
      if (ahead >= items) continue;
      bulk_stores_read();
      begin_load(ahead, next);
    }
    bulk_stores_done();
    return;
  }

  const auto qk_channel = [&](const Unit& unit) { return (thread < D ? 0 : key_width - D) + unit.key_head * D + thread; };
  const auto v_channel = [&](const Unit& unit, int i) {
    return 2 * key_width + unit.key_head * heads_a_key * D + i * kComputing + thread;
  };
  // The unit's b and a of the thread's head, for the first heads_a_key threads.
  const auto load_gates = [&](const Unit& unit) {
    const int at = args.shape.channels() + args.shape.value_width() + unit.key_head * heads_a_key + thread;
    const bf16* const u = args.projected.data + unit.row.token_begin * args.projected.stride[0];
    return thread < heads_a_key ? Gates{u[at], u[at + args.shape.value_heads]} : Gates{};
  };
  const float norm_weight = thread < D ? args.params.norm_weight[thread] : 0.0f;
  Unit next = unit_at(0), after_next = unit_at(min(1, my_units - 1));
  Inputs qk = load_inputs(args, next.row, qk_channel(next)), v[kValuesAThread];
#pragma unroll
  for (int i = 0; i < kValuesAThread; ++i)
    if (i * kComputing + thread < heads_a_key * D) v[i] = load_inputs(args, next.row, v_channel(next, i));
  Gates gates = load_gates(next);

  for (int n = 0; n < my_units; ++n) {
    const Unit unit = next;
    const bf16* const u = args.projected.data + unit.row.token_begin * args.projected.stride[0];
    const float activated = activate(args, unit.row, qk_channel(unit), qk);
    const float squares = warp_sum(activated * activated);
    if (lane == 0) shared.norms[warp] = squares;
#pragma unroll
    for (int i = 0; i < kValuesAThread; ++i)
      if (i * kComputing + thread < heads_a_key * D)
        shared.value[0][i * kComputing + thread] = activate(args, unit.row, v_channel(unit, i), v[i]);
    if (thread < heads_a_key) {
      const int head = unit.key_head * heads_a_key + thread;
      const float a = to_f32(gates.a) + args.params.dt_bias[head];
      const float softplus = a > 20.0f ? a : log1pf(__expf(a));
      shared.factor[thread] = __expf(-__expf(args.params.a_log[head]) * softplus);
      shared.beta[thread] = round_b16(sigmoid(to_f32(gates.b)));
    }
    computing_barrier();
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
      next = after_next;
      after_next = unit_at(min(n + 2, my_units - 1));
      qk = load_inputs(args, next.row, qk_channel(next));
#pragma unroll
      for (int i = 0; i < kValuesAThread; ++i)
        if (i * kComputing + thread < heads_a_key * D) v[i] = load_inputs(args, next.row, v_channel(next, i));
      gates = load_gates(next);
    }
    computing_barrier();
    float query_key = 0.0f;
#pragma unroll
    for (int i = lane; i < D; i += 32) query_key += shared.query[i] * shared.key[i];
    query_key = warp_sum(query_key);

    for (int h = 0; h < heads_a_key; ++h) {
      const int item = n * heads_a_key + h;
      const int stage = item % kStages;
      const int head = unit.key_head * heads_a_key + h;
      float* const tile = states + static_cast<std::int64_t>(stage) * D * D + warp * D + lane * 4;
      const bf16 z = thread < D ? u[args.shape.channels() + head * D + thread] : bf16{};
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
      computing_barrier();
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
      computing_barrier();
      const float4 d = *reinterpret_cast<const float4*>(&shared.delta[lane * 4]);
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const float k = shared.key[warp + i * kWarps];
        *reinterpret_cast<float4*>(tile + i * kWarps * D) =
            make_float4(factor * s[i].x + k * d.x, factor * s[i].y + k * d.y, factor * s[i].z + k * d.z, factor * s[i].w + k * d.w);
      }
      async_fence();
      barrier_arrive(&shared.updated[stage]);
      if (thread < D) {
        const float sum = shared.output_norms[0] + shared.output_norms[1] + shared.output_norms[2] + shared.output_norms[3];
        const float r = round_b16(o * rsqrtf(sum * (1.0f / D) + args.eps));
        args.y.data[unit.row.token_begin * args.y.stride[0] + head * args.y.stride[1] + thread] =
            to_b16(round_b16(norm_weight * r) * silu(to_f32(z)));
      }
    }
  }
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
