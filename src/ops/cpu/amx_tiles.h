// What AMX kernels share: the tile configuration and the word transposition that makes right-hand tiles.
// Included by _amx files only.

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

// rows[i] word j becomes rows[j] word i.
[[gnu::always_inline]] inline void transpose_16x16(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
    }
  }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
  }
}

}  // namespace
}  // namespace tandem::ops::cpu
