// The tile configuration of AMX kernels. Included by _amx files only.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tandem::ops::cpu {
namespace {

// rows[i] of tile i, 64 bytes each. A thread's configuration lasts until _tile_release.
struct TileRows {
  std::uint8_t rows[8];
};

[[gnu::always_inline]] inline void configure_tiles(const TileRows& tiles) {
  struct alignas(64) {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; ++i) config.rows[i] = tiles.rows[i];
  _tile_loadconfig(&config);
}

}  // namespace
}  // namespace tandem::ops::cpu
