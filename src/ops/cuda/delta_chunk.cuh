#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/delta.h"

// The chunked gated delta rule (spec 3.5) in two kernels: chunk_prepare does everything inside a chunk of
// 64 tokens, all chunks at once; chunk_scan carries the state from chunk to chunk.
//
// Between them lie tiles as the matrix units want them (delta_tile.cuh), so that whole tiles travel by the
// bulk copy engine. A chunk of n <= 64 tokens, of which the first is the step's token b, has per head:
//
//   query, key   2 tiles [n, 64] bf16, key dimensions 0-63 and 64-127    at (b Hk + n head) 256 bytes
//                normalised, the query scaled
//   w            2 tiles, -W of the spec                                 at (b Hv + n head) 256 bytes
//   scores       1 tile [n, 64], Q K^T with decay and mask               at (b Hv + n head) 128 bytes
//   from_begin   [n] float32 exp(G)                                      at (b Hv + n head) 4 bytes
//   to_end       [n] float32 exp(G of the last token - G)                same
//   u            [n, 128] bf16 rows where the answer goes: the one who reads them overwrites them
//
// Chunks of a step follow each other without gaps whatever their lengths, so all of it fits the mixer's scratch:
// query and key fill args.q, w fills args.v, scores take 128 Hv of args.k's 512 Hk bytes a token.
//
// Limits: 1 to kMostHeadsAKey value heads a key head, value heads even in number (rows of the projection begin at
// multiples of 8 bytes). Memory: prepare reads 2 C and writes 512 Hk + 648 Hv bytes a token, scan reads these and
// writes 256 Hv; beside them scan is bound by its chain of products, chunk after chunk (about 1.2 us a chunk).
namespace tandem::ops::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kMostHeadsAKey = 3;

struct ChunkScratch {
  bf16 *query, *key, *w, *scores;
  float *from_begin, *to_end;
};

[[nodiscard]] inline ChunkScratch chunk_scratch(const DeltaMixerArgs& args) {
  auto* const query = reinterpret_cast<bf16*>(args.q.data);
  return {.query = query,
          .key = query + args.q.shape[0] * args.q.stride[0],
          .w = args.v.data,
          .scores = reinterpret_cast<bf16*>(args.k.data),
          .from_begin = args.decay.data,
          .to_end = args.beta.data};
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
    const int chunks = (row.tokens + kChunk - 1) / kChunk, left = row.tokens - index * kChunk;
    if (index < chunks) return {row, row.token_begin + index * kChunk, left < kChunk ? left : kChunk};
    index -= chunks;
  }
}

// `chunks` of all prefill rows together, known to the host. All of them read the conv windows, which therefore
// advance in the scan.
[[nodiscard]] Result<void> chunk_prepare(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args, int chunks);
[[nodiscard]] Result<void> chunk_scan(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args);
[[nodiscard]] Result<void> allow_chunk_prepare();
[[nodiscard]] Result<void> allow_chunk_scan();

}  // namespace tandem::ops::cuda
