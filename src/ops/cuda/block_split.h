#pragma once

#include <algorithm>

// How the blocks of the decode-block kernel share the work of one product; plain integers, host and device.
namespace tandem::ops::cuda {

inline constexpr int kUnitRows = 16;   // rows of a unit, one tile
inline constexpr int kUnitCols = 512;  // inputs of a unit

// A weight [N, K] is cut into units of 16 rows x 512 inputs, 16 KiB, which is what one stage of the kernel's ring
// holds. The units of a tile (16 rows) may be dealt to several blocks: `groups` cuts K into equal parts, so that a
// block needs the activations of one part only. A strip is one tile in one group, `chunks` units long.
// Units are numbered by group, then tile, then chunk, and every block takes a run of them.
//
// whole: strips are not cut, so that a block has a tile's complete sums (one group then).
struct BlockSplit {
  int tiles = 0;
  int groups = 1;
  int chunks = 0;
  int blocks = 0;  // that take part, <= the grid; at most one a unit
  bool whole = false;

  [[nodiscard]] constexpr int strips() const { return tiles * groups; }
  [[nodiscard]] constexpr int units() const { return strips() * chunks; }

  // First unit of block b; units() for blocks that take no part. Block b has [begin(b), begin(b + 1)).
  [[nodiscard]] constexpr int begin(int b) const {
    if (b >= blocks) return units();
    return whole ? b * strips() / blocks * chunks : b * units() / blocks;
  }
  // The block whose run holds the unit (not for whole splits): the last b with begin(b) <= unit.
  [[nodiscard]] constexpr int owner(int unit) const { return ((unit + 1) * blocks - 1) / units(); }
  [[nodiscard]] constexpr int first_owner(int strip) const { return owner(strip * chunks); }
  [[nodiscard]] constexpr int last_owner(int strip) const { return owner((strip + 1) * chunks - 1); }

  // The chunks of K, [first_chunk(b), end_chunk(b)), that hold all inputs of the block's units.
  [[nodiscard]] constexpr int first_chunk(int b) const { return begin(b) / chunks / tiles * chunks; }
  [[nodiscard]] constexpr int end_chunk(int b) const {
    return begin(b + 1) > begin(b) ? ((begin(b + 1) - 1) / chunks / tiles + 1) * chunks : first_chunk(b);
  }

  // Chunks that some block needs at most, and blocks that share a strip at most.
  [[nodiscard]] constexpr int most_chunks() const {
    int most = 0;
    for (int b = 0; b < blocks; ++b) most = std::max(most, end_chunk(b) - first_chunk(b));
    return most;
  }
  [[nodiscard]] constexpr int most_owners() const {
    if (whole) return 1;
    int most = 0;
    for (int s = 0; s < strips(); ++s) most = std::max(most, last_owner(s) - first_owner(s) + 1);
    return most;
  }
};

// Every tile to one block.
[[nodiscard]] constexpr BlockSplit split_by_tiles(int tiles, int cols, int grid) {
  return {.tiles = tiles, .groups = 1, .chunks = (cols + kUnitCols - 1) / kUnitCols, .blocks = std::min(grid, tiles), .whole = true};
}

// Every block the same number of units, give or take one; K in as few groups as let no block need more than
// `most_chunks` of it. If not even single chunks do, the split needs more, which the caller checks.
[[nodiscard]] constexpr BlockSplit split_by_units(int tiles, int cols, int grid, int most_chunks) {
  const int chunks = (cols + kUnitCols - 1) / kUnitCols;
  BlockSplit split;
  for (int groups = 1; groups <= chunks; ++groups) {
    if (chunks % groups != 0) continue;
    split = {.tiles = tiles, .groups = groups, .chunks = chunks / groups, .blocks = std::min(grid, tiles * chunks)};
    if (split.most_chunks() <= most_chunks) break;
  }
  return split;
}

}  // namespace tandem::ops::cuda
