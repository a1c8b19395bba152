#include <algorithm>

#include "ops/cuda/attention_cuda.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/warpgroup.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kConsumers = 2;                 // warpgroups that multiply, 64 tokens each
constexpr int kThreads = (kConsumers + 1) * 128;
constexpr int kStages = 2;                    // pages of K and of V on their way
constexpr int kBlocks = kHeadDim / 64;        // swizzled blocks of 64 dimensions in a head
constexpr int kBlockBytes = 64 * 128;         // 64 rows of such a block
constexpr int kTileBytes = kBlocks * kBlockBytes;  // 64 rows of a head
constexpr float kScale = 0.0625f * 1.4426950408889634f;  // 256^-1/2, scores as powers of two

struct Shared {
  char query[kConsumers][kTileBytes];
  char k[kStages][kTileBytes];
  char v[kStages][kTileBytes];
  std::uint64_t query_there, k_there[kStages], v_there[kStages], k_free[kStages], v_free[kStages];
};

struct Place {
  DeviceRow row;
  int offset;  // of the tile's first token in its row
};

__device__ __forceinline__ Place find_tile(const DeviceStep& step, int index) {
  for (int r = step.decode_rows;; ++r) {
    const DeviceRow row = step.rows[r];
    const int tiles = (row.tokens + kPrefillTile - 1) / kPrefillTile;
    if (index < tiles) return {row, index * kPrefillTile};
    index -= tiles;
  }
}

// One warpgroup's 64 tokens of one head, over `pages` pages: S = Q K^T of the next page runs on the matrix
// units while this page's weights multiply V.
__device__ __forceinline__ void attend(const DeviceStep&, const AttentionArgs& args, Shared& shared, const Place& place, int head, int pages) {
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, thread = threadIdx.x % 128;
  const int lane = thread & 31, warp = thread >> 5;
  const int first = place.offset + group * 64;  // of this group in the row
  const int row_in_group = warp * 16 + lane / 4;
  const int position[2] = {place.row.base_pos + first + row_in_group, place.row.base_pos + first + row_in_group + 8};
  const int keys = place.row.base_pos + place.row.tokens;  // that exist in the pages

  const std::uint32_t query = shared_address(shared.query[group]);
  float answer[128] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  float score[32];
  std::uint32_t weights[4][4];

  const auto begin_scores = [&](int page) {
    const int stage = page % kStages;
    barrier_wait(&shared.k_there[stage], (page / kStages) & 1);
    const std::uint32_t k = shared_address(shared.k[stage]);
    products_begin();
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i) {
      const std::uint32_t at = i / 4 * kBlockBytes + i % 4 * 32;
      product_64x64(score, swizzled(query + at, 1024, 0), swizzled(k + at, 1024, 0), i > 0);
    }
    products_commit();
  };
  // After the scores are there: weights of the page, and what the answer so far shrinks by.
  const auto weigh = [&](int page, float (&shrink)[2]) {
    if (thread == 0) barrier_arrive(&shared.k_free[page % kStages]);
    const int first_key = page * kPageTokens + 2 * (lane & 3);
    if (page * kPageTokens + kPageTokens > place.row.base_pos + first + 1) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (first_key + i / 4 * 8 + i % 2 > position[i / 2 % 2]) score[i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = largest[r];
#pragma unroll
      for (int i = 0; i < 32; i += 4) top = fmaxf(top, fmaxf(score[i + 2 * r], score[i + 2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      shrink[r] = exp2f((largest[r] - top) * kScale);
      largest[r] = top;
      sum[r] *= shrink[r];
      const float shift = top * kScale;
#pragma unroll
      for (int i = 0; i < 32; i += 4)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& s = score[i + 2 * r + c];
          s = exp2f(fmaf(s, kScale, -shift));
          sum[r] += s;
        }
    }
  };
  const auto pack_weights = [&] {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      weights[k][0] = pack_b16(score[8 * k], score[8 * k + 1]);
      weights[k][1] = pack_b16(score[8 * k + 2], score[8 * k + 3]);
      weights[k][2] = pack_b16(score[8 * k + 4], score[8 * k + 5]);
      weights[k][3] = pack_b16(score[8 * k + 6], score[8 * k + 7]);
    }
  };
  const auto begin_answer = [&](int page) {
    const int stage = page % kStages;
    barrier_wait(&shared.v_there[stage], (page / kStages) & 1);
    if (keys < (page + 1) * kPageTokens) {
      // A weight of zero needs a value that is a number: rows that were never written become zero.
      for (int r = keys - page * kPageTokens + warp; r < kPageTokens; r += 4)
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) *reinterpret_cast<unsigned*>(shared.v[stage] + b * kBlockBytes + r * 128 + lane * 4) = 0;
      async_fence();
      asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    }
    const std::uint32_t v = shared_address(shared.v[stage]);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) product_64x256(answer, weights[k], swizzled(v + k * 16 * 128, 1024, kBlockBytes));
    products_commit();
  };

  float shrink[2];
  barrier_wait(&shared.query_there, 0);
  begin_scores(0);
  products_wait<0>();
  weigh(0, shrink);
  pack_weights();
  for (int page = 1; page < pages; ++page) {
    begin_scores(page);
    begin_answer(page - 1);
    products_wait<1>();
    weigh(page, shrink);
    products_wait<0>();
    if (thread == 0) barrier_arrive(&shared.v_free[(page - 1) % kStages]);
    pack_weights();
#pragma unroll
    for (int i = 0; i < 128; ++i) answer[i] *= shrink[i / 2 % 2];
  }
  begin_answer(pages - 1);
  products_wait<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    const int in_row = first + row_in_group + 8 * r;
    if (in_row >= place.row.tokens) continue;
    const std::int64_t t = place.row.token_begin + in_row;
    const bf16* const gate = args.gate.data + t * args.gate.stride[0] + head * args.gate.stride[1] + 2 * (lane & 3);
    bf16* const y = args.y.data + t * args.y.stride[0] + head * args.y.stride[1] + 2 * (lane & 3);
    const float whole = 1.0f / sum[r];
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const unsigned pair = *reinterpret_cast<const unsigned*>(gate + 8 * j);
      *reinterpret_cast<unsigned*>(y + 8 * j) =
          pack_b16(round_b16(answer[4 * j + 2 * r] * whole) * round_b16(sigmoid(low_f32(pair))),
                   round_b16(answer[4 * j + 2 * r + 1] * whole) * round_b16(sigmoid(high_f32(pair))));
    }
  }
}

// One block 128 tokens of a row and one head; the longest (last) tiles start first. Warpgroup 0 fetches pages by
// the copy engine, the others attend for 64 tokens each.
__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(DeviceStep step, AttentionArgs args, const __grid_constant__ CUtensorMap query_map,
                   const __grid_constant__ CUtensorMap kv_map, int tiles) {
  extern __shared__ char dynamic[];
  auto& shared = *reinterpret_cast<Shared*>((reinterpret_cast<std::uintptr_t>(dynamic) + 1023) / 1024 * 1024);
  const int head = blockIdx.x;
  const Place place = find_tile(step, tiles - 1 - static_cast<int>(blockIdx.y));
  const int last = min(place.row.tokens, place.offset + kPrefillTile);
  const int pages = (place.row.base_pos + last + kPageTokens - 1) / kPageTokens;

  if (threadIdx.x == 0) {
    barrier_init(&shared.query_there, 1);
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&shared.k_there[s], 1);
      barrier_init(&shared.v_there[s], 1);
      barrier_init(&shared.k_free[s], kConsumers);
      barrier_init(&shared.v_free[s], kConsumers);
    }
    barrier_init_fence();
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    barrier_expect(&shared.query_there, kConsumers * kTileBytes);
    for (int c = 0; c < kConsumers; ++c)
      for (int b = 0; b < kBlocks; ++b)
        tensor_load(shared.query[c] + b * kBlockBytes, &query_map, b * 64, head, place.row.token_begin + place.offset + c * 64, &shared.query_there);
    const int kv_head = head / (static_cast<int>(args.q.shape[1]) / args.kv.kv_heads);
    const std::int32_t* const table = step.page_table + static_cast<std::int64_t>(place.row.slot) * step.max_pages;
    for (int page = 0; page < pages; ++page) {
      const int stage = page % kStages, round = page / kStages;
      const auto row = static_cast<int>((table[page] * args.kv.page_stride) / kHeadDim) + kv_head * kPageTokens;
      if (round > 0) barrier_wait(&shared.k_free[stage], (round - 1) & 1);
      barrier_expect(&shared.k_there[stage], kTileBytes);
      for (int b = 0; b < kBlocks; ++b) tensor_load(shared.k[stage] + b * kBlockBytes, &kv_map, b * 64, row, &shared.k_there[stage]);
      if (round > 0) barrier_wait(&shared.v_free[stage], (round - 1) & 1);
      barrier_expect(&shared.v_there[stage], kTileBytes);
      for (int b = 0; b < kBlocks; ++b)
        tensor_load(shared.v[stage] + b * kBlockBytes, &kv_map, b * 64, row + static_cast<int>(args.kv.v_offset / kHeadDim), &shared.v_there[stage]);
    }
  } else {
    take_registers<240>();
    attend(step, args, shared, place, head, pages);
  }
}

constexpr int kSharedBytes = static_cast<int>(sizeof(Shared)) + 1024;

}  // namespace

Result<void> prepare_attention(const Context&) {
  TANDEM_TRY(checked(cudaFuncSetAttribute(prefill_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "attention_prefill"));
  return prepare_attention_decode();
}

Result<void> attention_prefill(const Context& context, const DeviceStep& step, const AttentionArgs& args) {
  if (step.prefill_tiles == 0) return {};
  const auto tokens = static_cast<std::uint64_t>(args.q.size(0)), heads = static_cast<std::uint64_t>(args.q.size(1));
  const std::uint64_t query_sizes[] = {kHeadDim, heads, tokens};
  const std::uint64_t query_strides[] = {kHeadDim * sizeof(bf16), static_cast<std::uint64_t>(args.q.stride[0]) * sizeof(bf16)};
  const std::uint32_t query_box[] = {64, 1, 64};
  TANDEM_ASSIGN(const CUtensorMap query_map, tensor_map(args.q.data, query_sizes, query_strides, query_box));
  // The pool from this layer on, as rows of one head: every page's rows have numbers below this bound.
  const std::uint64_t kv_sizes[] = {kHeadDim, std::uint64_t{1} << 31};
  const std::uint64_t kv_strides[] = {kHeadDim * sizeof(bf16)};
  const std::uint32_t kv_box[] = {64, 64};
  TANDEM_ASSIGN(const CUtensorMap kv_map, tensor_map(args.kv.base, kv_sizes, kv_strides, kv_box));
  prefill_kernel<<<dim3(static_cast<unsigned>(heads), static_cast<unsigned>(step.prefill_tiles)), kThreads, kSharedBytes, context.stream>>>(
      step, args, query_map, kv_map, step.prefill_tiles);
  return launched("attention_prefill");
}

}  // namespace tandem::ops::cuda
