#include "ops/cpu/linear_epilogue.h"

// Tiles: 0..3 sums (two of 16 tokens by two of 16 outputs), 4 and 5 tokens' inputs, 6 and 7 weights.

namespace tandem::ops::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kMostTokens = 2 * kTileRows;
constexpr std::int64_t kPairBytes = kBlockOutputs * 4;
constexpr std::int64_t kStepBytes = kPairsAlign * kPairBytes;  // weights of 32 inputs: 2 KiB
constexpr std::int64_t kPrefetchBytes = 4 * kStepBytes;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {};
};

TANDEM_INLINE void configure(int tokens) {
  TileConfig config;
  const auto upper = static_cast<std::uint8_t>(tokens < kTileRows ? tokens : kTileRows);
  const auto lower = static_cast<std::uint8_t>(tokens > kTileRows ? tokens - kTileRows : 1);
  config.rows[0] = config.rows[1] = config.rows[4] = upper;
  config.rows[2] = config.rows[3] = config.rows[5] = lower;
  config.rows[6] = config.rows[7] = kTileRows;
  _tile_loadconfig(&config);
}

TANDEM_INLINE void prefetch_step(const char* weights) {
  for (int line = 0; line < kStepBytes; line += 64)
    _mm_prefetch(weights + kPrefetchBytes + line, _MM_HINT_T0);
}

TANDEM_INLINE void up_to_16(const LinearTask& task, const char* weights, const bf16* x, float* out) {
  const std::int64_t x_bytes = task.x_stride * 2;
  _tile_zero(0);
  _tile_zero(1);
  for (std::int64_t pair = 0; pair < task.pairs;
       pair += kPairsAlign, weights += kStepBytes, x += 2 * kPairsAlign) {
    prefetch_step(weights);
    _tile_loadd(4, x, x_bytes);
    _tile_loadd(6, weights, kPairBytes);
    _tile_loadd(7, weights + 64, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, out, kBlockOutputs * 4);
  _tile_stored(1, out + kTileRows, kBlockOutputs * 4);
}

TANDEM_INLINE void up_to_32(const LinearTask& task, const char* weights, const bf16* x, float* out) {
  const std::int64_t x_bytes = task.x_stride * 2;
  const bf16* x_lower = x + kTileRows * task.x_stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t pair = 0; pair < task.pairs; pair += kPairsAlign, weights += kStepBytes) {
    _tile_loadd(4, x + 2 * pair, x_bytes);
    _tile_loadd(6, weights, kPairBytes);
    _tile_loadd(7, weights + 64, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x_lower + 2 * pair, x_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, kBlockOutputs * 4);
  _tile_stored(1, out + kTileRows, kBlockOutputs * 4);
  _tile_stored(2, out + kTileRows * kBlockOutputs, kBlockOutputs * 4);
  _tile_stored(3, out + kTileRows * kBlockOutputs + kTileRows, kBlockOutputs * 4);
}

}  // namespace

void linear_amx(const LinearTask& task) {
  alignas(64) float out[kMostTokens * kBlockOutputs];
  const auto* x = static_cast<const bf16*>(task.x);
  int configured = 0;
  for (int b = 0; b < task.block_count; ++b) {
    const auto* block = reinterpret_cast<const char*>(task.blocks) + b * task.pairs * kPairBytes;
    for (int t = 0; t < task.tokens; t += kMostTokens) {
      const int tokens = task.tokens - t < kMostTokens ? task.tokens - t : kMostTokens;
      if (tokens != configured) configure(configured = tokens);
      if (tokens > kTileRows) {
        up_to_32(task, block, x + t * task.x_stride, out);
      } else {
        up_to_16(task, block, x + t * task.x_stride, out);
      }
      finish_tile(task, out, t, tokens, b);
    }
  }
  _tile_release();  // a thread without live tiles is cheaper to switch
}

}  // namespace tandem::ops::cpu
