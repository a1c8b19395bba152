#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bf16.h"
#include "base/thread_team.h"
#include "ops/cpu/linear_kernels.h"
#include "ops/linear.h"

namespace tandem::ops::cpu {

// A weight in the order that the kernels stream it (linear_kernels.h). What LinearWeight::packed points to
// with the CPU backend; the backend owns it and the memory below.
struct PackedWeight {
  bf16* blocks = nullptr;
  std::int64_t rows = 0;  // N of the matrix; gates and ups together for a gate-up weight
  std::int64_t cols = 0;  // K
  bool gate_up = false;   // block = 16 gate rows, then their 16 up rows

  [[nodiscard]] std::int64_t pairs() const {
    return (cols + 2 * kPairsAlign - 1) / (2 * kPairsAlign) * kPairsAlign;
  }
  [[nodiscard]] std::int64_t block_count() const {
    const std::int64_t width = gate_up ? kSwigluChannels : kBlockOutputs;
    return ((gate_up ? rows / 2 : rows) + width - 1) / width;
  }
  [[nodiscard]] std::int64_t block_elements() const { return pairs() * 2 * kBlockOutputs; }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(block_count() * block_elements()) * sizeof(bf16);
  }
  // Row of the matrix that stands at `output` of `block`; -1 is padding.
  [[nodiscard]] std::int64_t row_at(std::int64_t block, int output) const;
};

// Fills `weight.blocks` (zeroed before). Row r of the stacked parts is row r of the matrix.
void pack(PackedWeight& weight, std::span<const HostMatrix> parts, ThreadTeam& team);
[[nodiscard]] std::vector<bf16> unpack(const PackedWeight& weight);

// A token's inputs as row `row` of a list of tiles (LinearInput::Bf16Tiles), padded with zeros.
void to_tile_rows(const bf16* x, std::int64_t inputs, bf16* tiles, int row);

}  // namespace tandem::ops::cpu
