#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/delta_tile.cuh"
#include "ops/cuda/delta_window.cuh"
#include "ops/cuda/device_math.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int D = kDeltaHeadDim;
constexpr int kColumns = 64;   // value dimensions of a block: 16 a warp of its one warpgroup
constexpr int kHalves = D / kColumns;
constexpr int kConsumers = 128;
constexpr int kThreads = kConsumers + 64;  // one warp more loads, one writes
constexpr int kStages = 3;

struct Stage {
  Tile w[2], query[2], key[2], scores;
  Tile u;  // this block's value dimensions; then the answer on its way out
};
struct Shared {
  Stage stage[kStages];
  float from_begin[kStages][kChunk], to_end[kStages][kChunk];
  std::uint64_t loaded[kStages], answered[kStages], released[kStages];
};

// What a block works on: one row, value head and half of its value dimensions.
struct Place {
  DeviceRow row;
  int head, key_head, first_column, chunks;
  __device__ int count(int chunk) const { return min(kChunk, row.tokens - chunk * kChunk); }
};

// Arrives at the barrier once the lane's async_copy16 so far have landed.
__device__ __forceinline__ void arrive_after_copies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void async_copy4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

// One warp fetches chunk after chunk: tiles by the bulk engine, u's strided rows and the decays piece by piece.
__device__ void load_chunks(Shared& shared, const DeltaMixerArgs& args, const ChunkScratch& scratch, const Place& place) {
  const int lane = threadIdx.x & 31;
  const int value_heads = args.shape.value_heads, key_heads = args.shape.key_heads;
  for (int chunk = 0; chunk < place.chunks; ++chunk) {
    const int at = chunk % kStages, count = place.count(chunk);
    const std::int64_t begin = place.row.token_begin + chunk * kChunk;
    const std::int64_t of_value = begin * value_heads + place.head * count, of_key = begin * key_heads + place.key_head * count;
    Stage& stage = shared.stage[at];
    std::uint64_t* const loaded = &shared.loaded[at];
    if (chunk >= kStages) {
      barrier_wait(&shared.released[at], (chunk / kStages - 1) & 1);
      barrier_wait(&shared.answered[at], (chunk / kStages - 1) & 1);  // passed already; see barrier_arrive
    }
    if (lane == 0) {
      const std::uint32_t bytes = count * 128;
      barrier_expect(loaded, 7 * bytes);
      for (int half = 0; half < 2; ++half) {
        bulk_load(&stage.w[half], scratch.w + of_value * D + half * count * 64, bytes, loaded);
        bulk_load(&stage.query[half], scratch.query + of_key * D + half * count * 64, bytes, loaded);
      }
      for (int half = 0; half < 2; ++half) bulk_load(&stage.key[half], scratch.key + of_key * D + half * count * 64, bytes, loaded);
      bulk_load(&stage.scores, scratch.scores + of_value * kChunk, bytes, loaded);
    }
    const bf16* const u = args.y.data + begin * args.y.stride[0] + place.head * args.y.stride[1] + place.first_column;
#pragma unroll 4
    for (int i = lane; i < kChunk * (kColumns / 8); i += 32) {
      const int t = i / (kColumns / 8), column = i % (kColumns / 8) * 8;
      async_copy16(tile_at(&stage.u, t, column), u + min(t, count - 1) * args.y.stride[0] + column, t < count);
    }
    for (int t = lane; t < count; t += 32) {
      async_copy4(&shared.from_begin[at][t], scratch.from_begin + of_value + t);
      async_copy4(&shared.to_end[at][t], scratch.to_end + of_value + t);
    }
    arrive_after_copies(loaded);
  }
}

// One warp writes chunk after chunk of the answer, which the warpgroup has left in u, and frees its stage.
__device__ void write_chunks(Shared& shared, const DeltaMixerArgs& args, const Place& place) {
  const int lane = threadIdx.x & 31, column = lane % 8 * 8;
  const std::int64_t stride = args.y.stride[0];
  bf16* y = args.y.data + (place.row.token_begin + lane / 8) * stride + place.head * args.y.stride[1] + place.first_column + column;
  for (int chunk = 0; chunk < place.chunks; ++chunk, y += kChunk * stride) {
    const int at = chunk % kStages, count = place.count(chunk);
    barrier_wait(&shared.answered[at], (chunk / kStages) & 1);
    uint4 piece[kChunk / 4];
#pragma unroll
    for (int i = 0; i < kChunk / 4; ++i) piece[i] = *reinterpret_cast<const uint4*>(tile_at(&shared.stage[at].u, 4 * i + lane / 8, column));
    barrier_arrive(&shared.released[at]);
#pragma unroll
    for (int i = 0; i < kChunk / 4; ++i)
      if (4 * i + lane / 8 < count) *reinterpret_cast<uint4*>(y + 4 * i * stride) = piece[i];
  }
}

// Everything is transposed, so that what one product leaves in registers is the left side of the next:
//
//   V'^T = U^T - S^T W^T      O^T = (S^T Q^T) exp(G) + V'^T scores^T      S^T = S^T exp(G_last) + (V' exp(G_last - G))^T K
//
// S^T [64, 128] of the warpgroup stays in float32 registers from the row's first chunk to its last. Sums of a
// thread: value dimension warp * 16 + lane / 4 (+ 8), tokens or key dimensions 8 n + 2 (lane % 4) (+ 1).
__device__ void scan_chunks(Shared& shared, const DeltaMixerArgs& args, const Place& place) {
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int column = 2 * (lane & 3);
  float s[64], change[64], v[32], o[32];
  float* const state = args.state.state + place.row.slot * args.state.state_stride + static_cast<std::int64_t>(place.head) * D * D +
                       column * D + place.first_column + warp * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 64; ++i) s[i] = place.row.base_pos > 0 ? state[(i / 4 * 8 + i % 2) * D + i % 4 / 2 * 8] : 0.0f;

  // Where the lane's row of 8x8 matrices lies in u: tokens 16 m .. + 15 by the warp's 16 value dimensions.
  const auto u_at = [&](Stage& stage, int m) {
    return tile_at(&stage.u, (lane & 7) + (lane >> 4) * 8, warp * 16 + ((lane >> 3) & 1) * 8) + m * 16 * 128;
  };
  std::uint32_t answer[kChunk / 16][4];
  const auto leave_answer = [&](int at) {
#pragma unroll
    for (int m = 0; m < kChunk / 16; ++m)
      store_matrices_transposed(u_at(shared.stage[at], m), answer[m][0], answer[m][1], answer[m][2], answer[m][3]);
    barrier_arrive(&shared.answered[at]);
  };

  int at = 0, phase = 0;
  for (int chunk = 0; chunk < place.chunks; ++chunk) {
    const int count = place.count(chunk);
    Stage& stage = shared.stage[at];
    std::uint32_t left[D / 16][4];  // the state as the left side of two products
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) left[k][i] = pack_b16(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
    barrier_wait(&shared.loaded[at], phase);
    if (count < kChunk) {
      if (chunk >= kStages) barrier_wait(&shared.answered[at], phase ^ 1);
      // Past the row's end V' must be zero, and what earlier chunks left there must not spoil it, were it NaN.
      for (int i = count * 8 + thread; i < kChunk * 8; i += kConsumers)
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<uint4*>(stage.w[half].bytes + i * 16) = make_uint4(0, 0, 0, 0);
          *reinterpret_cast<uint4*>(stage.key[half].bytes + i * 16) = make_uint4(0, 0, 0, 0);
        }
      if (thread >= count && thread < kChunk) shared.to_end[at][thread] = 0.0f;
      async_fence();
      warpgroup_barrier(0);
    }
    const std::uint64_t w = along_rows(stage.w), query = along_rows(stage.query), scores = along_rows(&stage.scores);
    const std::uint64_t key = across_rows(stage.key);
    products_begin();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) product_along(v, left[k], along_rows_step(w, k), k > 0);
    products_commit();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) product_along(o, left[k], along_rows_step(query, k), k > 0);
    products_commit();
    std::uint32_t u[kChunk / 16][4];
#pragma unroll
    for (int m = 0; m < kChunk / 16; ++m) load_matrices_transposed(u[m], u_at(stage, m));
    if (chunk > 0) leave_answer(at == 0 ? kStages - 1 : at - 1);
    float2 fading[kChunk / 8], grown[kChunk / 8];
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      fading[n] = *reinterpret_cast<const float2*>(&shared.to_end[at][8 * n + column]);
      grown[n] = *reinterpret_cast<const float2*>(&shared.from_begin[at][8 * n + column]);
    }
    const float keep = shared.from_begin[at][count - 1];
    products_wait<1>();

    std::uint32_t plain[kChunk / 16][4], decayed[kChunk / 16][4];  // V'^T as a left side; the second for the state
#pragma unroll
    for (int m = 0; m < kChunk / 16; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 f = fading[2 * m + i / 2];
        const float x0 = low_f32(u[m][i]) + v[8 * m + 2 * i], x1 = high_f32(u[m][i]) + v[8 * m + 2 * i + 1];
        plain[m][i] = pack_b16(x0, x1);
        decayed[m][i] = pack_b16(x0 * f.x, x1 * f.y);
      }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] *= i % 2 ? grown[i / 4].y : grown[i / 4].x;
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) product_across(change, decayed[k], across_rows_step(key, k), k > 0);
    products_commit();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) product_along(o, plain[k], along_rows_step(scores, k), true);
    products_commit();
    products_wait<1>();
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = keep * s[i] + change[i];
    products_wait<0>();
#pragma unroll
    for (int m = 0; m < kChunk / 16; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) answer[m][i] = pack_b16(o[8 * m + 2 * i], o[8 * m + 2 * i + 1]);
    if (++at == kStages) at = 0, phase ^= 1;
  }
  leave_answer(at == 0 ? kStages - 1 : at - 1);
#pragma unroll
  for (int i = 0; i < 64; ++i) state[(i / 4 * 8 + i % 2) * D + i % 4 / 2 * 8] = s[i];
}

// One block a row, value head and half of its value dimensions: a warpgroup that computes, a warp that
// loads and one that writes.
__global__ void __launch_bounds__(kThreads, 1) chunk_scan_kernel(DeviceStep step, DeltaMixerArgs args, ChunkScratch scratch) {
  extern __shared__ __align__(1024) char dynamic[];
  auto& shared = *reinterpret_cast<Shared*>(dynamic);
  const DeviceRow row = step.rows[step.decode_rows + blockIdx.y];
  const int head = static_cast<int>(blockIdx.x) / kHalves;
  const Place place{.row = row,
                    .head = head,
                    .key_head = head / (args.shape.value_heads / args.shape.key_heads),
                    .first_column = static_cast<int>(blockIdx.x) % kHalves * kColumns,
                    .chunks = (row.tokens + kChunk - 1) / kChunk};
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : shared.loaded) barrier_init(&barrier, 1 + 32);
    for (std::uint64_t& barrier : shared.answered) barrier_init(&barrier, kConsumers);
    for (std::uint64_t& barrier : shared.released) barrier_init(&barrier, 32);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < kConsumers) {
    scan_chunks(shared, args, place);
    return;
  }
  if (threadIdx.x >= kConsumers + 32) {
    write_chunks(shared, args, place);
    return;
  }
  load_chunks(shared, args, scratch, place);
  // The row's blocks share its conv window out among them.
  for (int channel = blockIdx.x * 32 + threadIdx.x - kConsumers; channel < args.shape.channels(); channel += gridDim.x * 32)
    advance_window(args.projected, args.state, row, channel);
}

}  // namespace

Result<void> allow_chunk_scan() {
  return checked(cudaFuncSetAttribute(chunk_scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)), "delta scan");
}

Result<void> chunk_scan(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.shape.value_heads * kHalves), static_cast<unsigned>(step.total_rows - step.decode_rows));
  chunk_scan_kernel<<<grid, kThreads, sizeof(Shared), context.stream>>>(step, args, chunk_scratch(args));
  return launched("delta scan");
}

}  // namespace tandem::ops::cuda
