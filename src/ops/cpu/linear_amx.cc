#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/linear_epilogue.h"

// Tiles: 0..3 sums (two of 16 tokens by two of 16 outputs), 4 and 5 tokens' inputs, 6 and 7 weights.

namespace tandem::ops::cpu {
namespace {

constexpr int kTileRows = kTileTokens;
constexpr int kTileRowBytes = 64;
constexpr int kTileElements = kTileRows * 32;
constexpr int kMostTokens = 2 * kTileRows;
constexpr std::int64_t kPairBytes = kBlockOutputs * 4;
constexpr std::int64_t kStepBytes = kPairsAlign * kPairBytes;  // weights of 32 inputs: 2 KiB
constexpr std::int64_t kPrefetchBytes = 4 * kStepBytes;

TANDEM_INLINE void configure(int tokens) {
  const auto upper = static_cast<std::uint8_t>(tokens < kTileRows ? tokens : kTileRows);
  const auto lower = static_cast<std::uint8_t>(tokens > kTileRows ? tokens - kTileRows : 1);
  configure_tiles({.rows = {upper, upper, lower, lower, upper, lower, kTileRows, kTileRows}});
}

TANDEM_INLINE void prefetch_step(const char* weights) {
  for (int line = 0; line < kStepBytes; line += 64)
    _mm_prefetch(weights + kPrefetchBytes + line, _MM_HINT_T0);
}

// A tile of sums that waits to be written out. The vector units do that, a row a step, while the tile unit
// works on the next one: done in between, it costs a third of the time.
struct Waiting {
  const float* tile = nullptr;
  int first_token = 0;
  int rows = 0;
  int block = 0;
  int next = 0;

  [[gnu::always_inline]] void finish_one(const LinearTask& task) {
    if (next == rows) return;
    finish_row(task, tile + next * kBlockOutputs, first_token + next, block);
    ++next;
  }
  void finish(const LinearTask& task) {
    while (next < rows) finish_one(task);
  }
};

// x: the tiles of 16 tokens.
TANDEM_INLINE void up_to_16(const LinearTask& task, const char* weights, const bf16* x, float* out,
                            Waiting& waiting) {
  _tile_zero(0);
  _tile_zero(1);
  for (std::int64_t pair = 0; pair < task.pairs;
       pair += kPairsAlign, weights += kStepBytes, x += kTileElements) {
    prefetch_step(weights);
    _tile_loadd(4, x, kTileRowBytes);
    _tile_loadd(6, weights, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + 64, kPairBytes);
    _tile_dpbf16ps(1, 4, 7);
    waiting.finish_one(task);
  }
  waiting.finish(task);
  _tile_stored(0, out, kBlockOutputs * 4);
  _tile_stored(1, out + kTileRows, kBlockOutputs * 4);
}

// Meanwhile `ahead`, the weights that come next, moves on by `lines` cache lines a step towards the
// second-level cache.
TANDEM_INLINE const char* up_to_32(const LinearTask& task, const char* weights, const bf16* x, float* out,
                                   const char* ahead, int lines, Waiting& waiting) {
  const bf16* x_lower = x + task.x_stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t pair = 0; pair < task.pairs; pair += kPairsAlign, weights += kStepBytes) {
    _tile_loadd(4, x, kTileRowBytes);
    _tile_loadd(6, weights, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + 64, kPairBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x_lower, kTileRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    for (int line = 0; line < lines; ++line, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
    waiting.finish_one(task);
    x += kTileElements;
    x_lower += kTileElements;
  }
  waiting.finish(task);
  _tile_stored(0, out, kBlockOutputs * 4);
  _tile_stored(1, out + kTileRows, kBlockOutputs * 4);
  _tile_stored(2, out + kTileRows * kBlockOutputs, kBlockOutputs * 4);
  _tile_stored(3, out + kTileRows * kBlockOutputs + kTileRows, kBlockOutputs * 4);
  return ahead;
}

// Few tokens: the weights' way from memory is what counts, and one thread gets a sixth more from eight places
// at once than from one (two cores of a Xeon with AMX, 2 KiB ahead in each). So eight blocks advance together,
// and their sums wait in the first-level cache for their turn.
constexpr int kStreams = 8;
constexpr std::int64_t kStreamAhead = kStepBytes;
constexpr int kLines = kStepBytes / 64;

TANDEM_INLINE void prefetch_lines(const char* weights) {
  for (int line = 0; line < kStepBytes; line += 64) _mm_prefetch(weights + line, _MM_HINT_T0);
}

void few_tokens(const LinearTask& task) {
  alignas(64) float sums[kStreams][kTileRows * kBlockOutputs];
  const auto* x = static_cast<const bf16*>(task.x);
  const std::int64_t block_bytes = task.pairs * kPairBytes;
  configure(task.tokens);
  for (int first = 0; first < task.block_count; first += kStreams) {
    const int streams = task.block_count - first < kStreams ? task.block_count - first : kStreams;
    const auto* group = reinterpret_cast<const char*>(task.blocks) + first * block_bytes;
    const int next_streams = task.block_count - first - streams < kStreams ? task.block_count - first - streams : kStreams;
    for (int s = 0; s < streams; ++s) {
      if (first == 0) prefetch_lines(group + s * block_bytes);
      __builtin_memset(sums[s], 0, static_cast<std::size_t>(task.tokens) * kBlockOutputs * sizeof(float));
    }
    for (std::int64_t at = 0, tile = 0; at < block_bytes; at += kStepBytes, tile += kTileElements) {
      _tile_loadd(4, x + tile, kTileRowBytes);
      const bool last = at + kStreamAhead == block_bytes;
      for (int s = 0; s < streams; ++s) {
        const char* weights = group + s * block_bytes + at;
        // A part of every stream's next step, so that memory is asked in eight places at once.
        const char* ahead = last ? group + streams * block_bytes : group + at + kStreamAhead;
        const int ahead_streams = last ? next_streams : streams;
        for (int line = 64 * (s * kLines / streams); line < 64 * ((s + 1) * kLines / streams); line += 64) {
          for (int to = 0; to < ahead_streams; ++to) _mm_prefetch(ahead + to * block_bytes + line, _MM_HINT_T0);
        }
        _tile_loadd(0, sums[s], kBlockOutputs * 4);
        _tile_loadd(6, weights, kPairBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stored(0, sums[s], kBlockOutputs * 4);
        _tile_loadd(1, sums[s] + kTileRows, kBlockOutputs * 4);
        _tile_loadd(7, weights + 64, kPairBytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stored(1, sums[s] + kTileRows, kBlockOutputs * 4);
      }
    }
    for (int s = 0; s < streams; ++s) finish_tile(task, sums[s], 0, task.tokens, first + s);
  }
  _tile_release();
}

}  // namespace

void linear_amx(const LinearTask& task) {
  if (task.tokens <= kTileRows) return few_tokens(task);
  alignas(64) float out[2][kMostTokens * kBlockOutputs];
  int side = 0;
  Waiting waiting;
  const auto* x = static_cast<const bf16*>(task.x);
  const std::int64_t block_bytes = task.pairs * kPairBytes;
  const int groups = (task.tokens + kMostTokens - 1) / kMostTokens;
  const int lines = static_cast<int>(kStepBytes / 64 + groups - 1) / groups;
  int configured = 0;
  for (int b = 0; b < task.block_count; ++b) {
    const auto* block = reinterpret_cast<const char*>(task.blocks) + b * block_bytes;
    const char* ahead = block + block_bytes;
    for (int t = 0; t < task.tokens; t += kMostTokens) {
      const int tokens = task.tokens - t < kMostTokens ? task.tokens - t : kMostTokens;
      if (tokens != configured) configure(configured = tokens);
      const bf16* tiles = x + t / kTileRows * task.x_stride;
      if (tokens > kTileRows) {
        ahead = up_to_32(task, block, tiles, out[side], ahead, lines, waiting);
      } else {
        up_to_16(task, block, tiles, out[side], waiting);
      }
      waiting = {.tile = out[side], .first_token = t, .rows = tokens, .block = b};
      side = 1 - side;
    }
  }
  waiting.finish(task);
  _tile_release();  // a thread without live tiles is cheaper to switch
}

}  // namespace tandem::ops::cpu
