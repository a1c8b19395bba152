#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/delta.h"

// The chunked gated delta rule (spec 3.5) in two kernels: chunk_prepare does everything inside a chunk of
// 64 tokens, all chunks at once; chunk_scan carries the state from chunk to chunk. Between them lie, per
// token of the step, in the mixer's scratch:
//
//   query, key   [T, Hk, 128] bf16  normalised, the query scaled           in args.q (exactly its bytes)
//   w            [T, Hv, 128] bf16  W of the spec                          in args.v
//   u            [T, Hv, 128] bf16  U of the spec, later the output        in args.y
//   scores       [T, Hv] rows of kScoreRow bytes: 64 bf16 (Q K^T with decay and mask, the token's row of
//                                   its chunk), then G as float32          in args.k
namespace tandem::ops::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kScoreRow = 160;       // bytes; Hv * 160 <= Hk * 512 for up to 3 value heads a key head
inline constexpr int kScoreRowUsed = 144;   // bytes that matter: the scores, G and 12 of padding
inline constexpr int kMostHeadsAKey = 3;

struct ChunkScratch {
  bf16* query;
  bf16* key;
  bf16* w;
  bf16* u;
  char* scores;
};

[[nodiscard]] inline ChunkScratch chunk_scratch(const DeltaMixerArgs& args) {
  auto* const query = reinterpret_cast<bf16*>(args.q.data);
  return {query, query + args.q.shape[0] * args.q.stride[0], args.v.data, args.y.data, reinterpret_cast<char*>(args.k.data)};
}

// A chunk of a row: tokens [begin, begin + count) of the step.
struct ChunkPlace {
  DeviceRow row;
  int begin, count;
};

// The index-th chunk of the prefill rows.
__device__ __forceinline__ ChunkPlace find_chunk(const DeviceStep& step, int index) {
  for (int r = step.decode_rows;; ++r) {
    const DeviceRow row = step.rows[r];
    const int chunks = (row.tokens + kChunk - 1) / kChunk;
    if (index < chunks) return {row, row.token_begin + index * kChunk, min(kChunk, row.tokens - index * kChunk)};
    index -= chunks;
  }
}

// `chunks` of all prefill rows together, known to the host.
[[nodiscard]] Result<void> chunk_prepare(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args, int chunks);
[[nodiscard]] Result<void> chunk_scan(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args);
[[nodiscard]] Result<void> allow_chunk_prepare();
[[nodiscard]] Result<void> allow_chunk_scan();

}  // namespace tandem::ops::cuda
