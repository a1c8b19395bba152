#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/delta_chunk_conv.cuh"
#include "ops/cuda/delta_chunk_solve.cuh"
#include "ops/cuda/delta_tile.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int D = kDeltaHeadDim;
constexpr float kLog2E = 1.4426950408889634f;

// Of one value head.
struct HeadShared {
  Tile value[2];  // then U
  union {
    SolveBlock blocks[kSolveBlocks];
    Tile inverse[2];  // T diag(beta) and -T diag(beta exp(G)); then -W
  };
};
template <int kHeads>
struct Shared {
  // The first kHeads of `query` (and one tile more for a third head) hold the scores once the query is used up.
  Tile query[kHeads > 2 ? kHeads : 2];
  Tile key[2];
  HeadShared head[kHeads];
  float g[kHeads][kChunk];  // G times log2(e)
  float beta[kHeads][kChunk];
};

// What decay and beta of a head's tokens come from, two neighbouring tokens a lane.
struct GateInputs {
  float a[2], b[2], bias, log_rate;
};
__device__ __forceinline__ GateInputs load_gates(const DeltaMixerArgs& args, const ChunkPlace& place, int head) {
  const int lane = threadIdx.x & 31;
  GateInputs in;
  in.bias = args.params.dt_bias[head], in.log_rate = args.params.a_log[head];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t t = place.begin + min(2 * lane + i, place.count - 1);
    const bf16* const gates = args.projected.data + t * args.projected.stride[0] + args.shape.channels() + args.shape.value_width();
    in.b[i] = to_f32(gates[head]), in.a[i] = to_f32(gates[args.shape.value_heads + head]);
  }
  return in;
}

// One warp: decay and beta (spec 3.4.4), zero past the row's end; also what the scan wants of them.
__device__ void prepare_gates(const GateInputs& in, const ChunkScratch& scratch, std::int64_t of_value, int count, float* g, float* beta) {
  const int lane = threadIdx.x & 31;
  const float rate = -expf(in.log_rate) * kLog2E;
  float step[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const float a = in.a[i] + in.bias;
    step[i] = t < count ? rate * (a > 20.0f ? a : log1pf(expf(a))) : 0.0f;
    beta[t] = t < count ? round_b16(1.0f / (1.0f + expf(-in.b[i]))) : 0.0f;
  }
  float total = step[0] + step[1];
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const float before = __shfl_up_sync(0xffffffffu, total, offset);
    if (lane >= offset) total += before;
  }
  const float last = __shfl_sync(0xffffffffu, total, 31);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const float mine = i == 0 ? total - step[1] : total;
    g[t] = mine;
    if (t >= count) continue;
    scratch.from_begin[of_value + t] = exp2_fast(mine);
    scratch.to_end[of_value + t] = exp2_fast(last - mine);
  }
}

// The warp's 16 rows of a tile, of which the chunk has `count`, to their place in device memory.
__device__ __forceinline__ void store_rows(bf16* tile_out, const Tile* tile, int warp, int count) {
  const int rows = min(16, count - warp * 16);
  if (rows > 0) bulk_store(tile_out + warp * 16 * 64, tile->bytes + warp * 16 * 128, rows * 128);
}

// The warp's 16 rows of sums [64, 128] become rows of two tiles.
__device__ __forceinline__ void sums_to_tiles(Tile* tiles, const std::uint32_t (&packed)[32], int warp, int lane) {
#pragma unroll
  for (int n = 0; n < D / 8; n += 2)
    store_matrices(tile_at(&tiles[n / 8], warp * 16 + (lane & 15), n % 8 * 8 + lane / 16 * 8), packed[2 * n], packed[2 * n + 1], packed[2 * n + 2],
                   packed[2 * n + 3]);
}

// One block a chunk and key head; one warpgroup for each of the kHeads value heads that share the key head. All
// of them convolve, then each goes its own way. Inside a warpgroup, warp w is about tokens 16 w .. + 15, but
// about column w of blocks while T is solved for.
template <int kHeads>
__global__ void __launch_bounds__(128 * kHeads, kHeads == 1 ? 3 : kHeads == 2 ? 2 : 1)
    chunk_prepare_kernel(DeviceStep step, DeltaMixerArgs args, ChunkScratch scratch) {
  extern __shared__ __align__(1024) char dynamic[];
  auto& shared = *reinterpret_cast<Shared<kHeads>*>(dynamic);
  const ChunkPlace place = find_chunk(step, blockIdx.x);
  const int key_head = blockIdx.y, key_heads = args.shape.key_heads, value_heads = args.shape.value_heads;
  __builtin_assume(threadIdx.x < 128 * kHeads);
  const int lane = threadIdx.x & 31, group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3;
  const int head = key_head * kHeads + group;
  HeadShared& mine = shared.head[group];

  const std::int64_t of_value = std::int64_t{place.begin} * value_heads + head * place.count;
  GateInputs gates;
  if (warp == 3) gates = load_gates(args, place, head);
  // Sixteen tokens of one head of 128 channels are an item: query, key, then the value heads. All of a warp's items
  // are on their way before it turns to the first.
  constexpr int kWarps = 4 * kHeads, kItems = 4 * (2 + kHeads), kItemsAWarp = (kItems + kWarps - 1) / kWarps;
  const int first_item = threadIdx.x >> 5;
  ConvItem items[kItemsAWarp];
#pragma unroll
  for (int n = 0; n < kItemsAWarp; ++n) {
    const int item = first_item + n * kWarps, what = item / 4;
    if (item >= kItems) {
      async_commit();  // an empty group, so that every warp counts the same
      continue;
    }
    const int channel = (what == 0 ? key_head : what == 1 ? key_heads + key_head : 2 * key_heads + key_head * kHeads + what - 2) * D + lane * 4;
    items[n] = begin_conv(what == 0 ? shared.query : what == 1 ? shared.key : shared.head[what - 2].value, item % 4, channel, args, place);
  }
#pragma unroll
  for (int n = 0; n < kItemsAWarp; ++n) {
    const int item = first_item + n * kWarps;
    if (item >= kItems) continue;
    if (n == kItemsAWarp - 1)
      async_wait<0>();
    else if (n == kItemsAWarp - 2)
      async_wait<1>();
    else
      async_wait<2>();
    if (item < 8)
      convolve<true>(items[n], place.count, item < 4 ? 0.08838834764831845f : 1.0f);  // 128^-1/2
    else
      convolve<false>(items[n], place.count, 1.0f);
  }
  if (warp == 3) prepare_gates(gates, scratch, of_value, place.count, shared.g[group], shared.beta[group]);
  async_fence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const std::int64_t at = (std::int64_t{place.begin} * key_heads + key_head * place.count) * D;
    for (int half = 0; half < 2; ++half) {
      bulk_store(scratch.query + at + half * place.count * 64, &shared.query[half], place.count * 128);
      bulk_store(scratch.key + at + half * place.count * 64, &shared.key[half], place.count * 128);
    }
  }

  const int row = warp * 16 + lane / 4, column = 2 * (lane & 3);  // of the sums: rows row, row + 8
  const float g[2] = {shared.g[group][row], shared.g[group][row + 8]}, beta[2] = {shared.beta[group][row], shared.beta[group][row + 8]};
  std::uint32_t scores[kChunk / 8][2];
  {
    float by_query[32], by_key[32];
    const std::uint64_t query_rows = along_rows(shared.query), key_rows = along_rows(shared.key);
    products_begin();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      product_64x64(by_query, along_rows_step(query_rows, k), along_rows_step(key_rows, k), k > 0);
    products_commit();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      product_64x64(by_key, along_rows_step(key_rows, k), along_rows_step(key_rows, k), k > 0);
    products_commit();
    products_wait<1>();
    // Masked before the exponential, whose upper half would overflow.
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      scores[n][0] = scores[n][1] = 0;
      if (n / 2 > warp) continue;
      const float2 other = *reinterpret_cast<const float2*>(&shared.g[group][8 * n + column]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half, j = 8 * n + column;
        const float s0 = j <= i ? by_query[4 * n + 2 * half] * exp2_fast(g[half] - other.x) : 0.0f;
        const float s1 = j + 1 <= i ? by_query[4 * n + 2 * half + 1] * exp2_fast(g[half] - other.y) : 0.0f;
        scores[n][half] = pack_b16(s0, s1);
      }
    }
    products_wait<0>();
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp) continue;
      const float2 other = *reinterpret_cast<const float2*>(&shared.g[group][8 * n + column]);
      SolveBlock& block = solve_block(mine.blocks, warp, n / 2);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half, j = 8 * n + column;
        float a0 = j < i ? beta[half] * by_key[4 * n + 2 * half] * exp2_fast(g[half] - other.x) : 0.0f;
        float a1 = j + 1 < i ? beta[half] * by_key[4 * n + 2 * half + 1] * exp2_fast(g[half] - other.y) : 0.0f;
        if (n / 2 < warp) a0 = round_tf32(a0), a1 = round_tf32(a1);
        *reinterpret_cast<float2*>(&block[lane / 4 + 8 * half][n % 2 * 8 + column]) = make_float2(a0, a1);
      }
    }
  }
  __syncwarp();
  invert_diagonal(solve_block(mine.blocks, warp, warp));
  if (threadIdx.x == 0) bulk_stores_read();
  __syncthreads();  // A and the diagonal's inverses are there; nobody needs the query any more

  Tile* const scores_tile = &shared.query[group];
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2)
    store_matrices(tile_at(scores_tile, warp * 16 + (lane & 15), n * 8 + lane / 16 * 8), scores[n][0], scores[n][1], scores[n + 1][0], scores[n + 1][1]);
  async_fence();
  __syncwarp();
  if (lane == 0) store_rows(scratch.scores + of_value * kChunk, scores_tile, warp, place.count);

  float t[4][8];
  solve_column(t, mine.blocks, warp);
  warpgroup_barrier(group);  // T takes the blocks' place
  {
    const float b[2] = {shared.beta[group][row], shared.beta[group][row + 8]};
    const float d[2] = {-b[0] * exp2_fast(shared.g[group][row]), -b[1] * exp2_fast(shared.g[group][row + 8])};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at_row = i * 16 + (lane & 7) + lane / 16 * 8, at_column = warp * 16 + (lane >> 3 & 1) * 8;
      const float(&x)[8] = t[i];
      store_matrices_transposed(tile_at(&mine.inverse[0], at_row, at_column), pack_b16(x[0] * b[0], x[1] * b[0]), pack_b16(x[2] * b[1], x[3] * b[1]),
                                pack_b16(x[4] * b[0], x[5] * b[0]), pack_b16(x[6] * b[1], x[7] * b[1]));
      store_matrices_transposed(tile_at(&mine.inverse[1], at_row, at_column), pack_b16(x[0] * d[0], x[1] * d[0]), pack_b16(x[2] * d[1], x[3] * d[1]),
                                pack_b16(x[4] * d[0], x[5] * d[0]), pack_b16(x[6] * d[1], x[7] * d[1]));
    }
  }
  warpgroup_barrier(group);
  std::uint32_t by_value[4][4], by_key[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    load_matrices(by_value[k], tile_at(&mine.inverse[0], warp * 16 + (lane & 15), 16 * k + lane / 16 * 8));
    load_matrices(by_key[k], tile_at(&mine.inverse[1], warp * 16 + (lane & 15), 16 * k + lane / 16 * 8));
  }
  std::uint32_t packed[32];
  float sums[64];
  const auto pack_sums = [&] {
#pragma unroll
    for (int i = 0; i < 32; ++i) packed[i] = pack_b16(sums[2 * i], sums[2 * i + 1]);
  };
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k) product_across(sums, by_value[k], across_rows_step(across_rows(mine.value), k), k > 0);
  products_commit();
  products_wait<0>();
  pack_sums();
  warpgroup_barrier(group);  // U takes the values' place
  sums_to_tiles(mine.value, packed, warp, lane);
  __syncwarp();
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k) product_across(sums, by_key[k], across_rows_step(across_rows(shared.key), k), k > 0);
  products_commit();
  bf16* const u = args.y.data + place.begin * args.y.stride[0] + head * args.y.stride[1];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int token = warp * 16 + 2 * i + lane / 16, at = lane % 16 * 8;
    if (token < place.count)
      *reinterpret_cast<uint4*>(u + token * args.y.stride[0] + at) = *reinterpret_cast<const uint4*>(tile_at(&mine.value[at / 64], token, at % 64));
  }
  products_wait<0>();
  pack_sums();
  sums_to_tiles(mine.inverse, packed, warp, lane);  // over rows of T that only this warp has read
  async_fence();
  __syncwarp();
  if (lane == 0) {
    for (int half = 0; half < 2; ++half) store_rows(scratch.w + of_value * D + half * place.count * 64, &mine.inverse[half], warp, place.count);
    bulk_stores_read();
  }
}

template <int kHeads>
Result<void> allow() {
  return checked(cudaFuncSetAttribute(chunk_prepare_kernel<kHeads>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<kHeads>)), "delta chunks");
}

template <int kHeads>
void launch(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args, int chunks) {
  chunk_prepare_kernel<kHeads>
      <<<dim3(chunks, args.shape.key_heads), 128 * kHeads, sizeof(Shared<kHeads>), context.stream>>>(step, args, chunk_scratch(args));
}

}  // namespace

Result<void> allow_chunk_prepare() {
  TANDEM_TRY(allow<1>());
  TANDEM_TRY(allow<2>());
  return allow<3>();
}

Result<void> chunk_prepare(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args, int chunks) {
  const int heads_a_key = args.shape.value_heads / args.shape.key_heads;
  (heads_a_key == 1 ? launch<1> : heads_a_key == 2 ? launch<2> : launch<3>)(context, step, args, chunks);
  return launched("delta chunks");
}

}  // namespace tandem::ops::cuda
