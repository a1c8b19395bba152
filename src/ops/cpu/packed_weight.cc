#include "ops/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

namespace tandem::ops::cpu {

std::int64_t PackedWeight::row_at(std::int64_t block, int output) const {
  if (!gate_up) {
    const std::int64_t row = block * kBlockOutputs + output;
    return row < rows ? row : -1;
  }
  const std::int64_t channel = block * kSwigluChannels + output % kSwigluChannels;
  if (channel >= rows / 2) return -1;
  return output < kSwigluChannels ? channel : rows / 2 + channel;
}

namespace {

const bf16* find_row(std::span<const HostMatrix> parts, std::int64_t row) {
  for (const HostMatrix& part : parts) {
    if (row < part.rows) return part.data + row * part.row_stride;
    row -= part.rows;
  }
  return nullptr;
}

}  // namespace

void pack(PackedWeight& weight, std::span<const HostMatrix> parts, ThreadTeam& team) {
  team.run(weight.block_count(), [&](std::int64_t block, int) {
    bf16* to = weight.blocks + block * weight.block_elements();
    const bf16* from[kBlockOutputs];
    for (int output = 0; output < kBlockOutputs; ++output) {
      const std::int64_t row = weight.row_at(block, output);
      from[output] = row < 0 ? nullptr : find_row(parts, row);
    }
    // A few pairs of all rows at a time: both sides stay in the first-level cache.
    constexpr std::int64_t kStretch = 64;
    for (std::int64_t begin = 0; begin < weight.cols; begin += kStretch) {
      const std::int64_t end = std::min(begin + kStretch, weight.cols);
      for (int output = 0; output < kBlockOutputs; ++output) {
        if (from[output] == nullptr) continue;
        std::int64_t k = begin;
        for (; k + 2 <= end; k += 2) {
          std::memcpy(to + k * kBlockOutputs + 2 * output, from[output] + k, 2 * sizeof(bf16));
        }
        if (k < end) to[k * kBlockOutputs + 2 * output] = from[output][k];
      }
    }
  });
}

std::vector<bf16> unpack(const PackedWeight& weight) {
  std::vector<bf16> matrix(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t block = 0; block < weight.block_count(); ++block) {
    const bf16* from = weight.blocks + block * weight.block_elements();
    for (int output = 0; output < kBlockOutputs; ++output) {
      const std::int64_t row = weight.row_at(block, output);
      if (row < 0) continue;
      for (std::int64_t k = 0; k < weight.cols; ++k) {
        matrix[static_cast<std::size_t>(row * weight.cols + k)] =
            from[k / 2 * 2 * kBlockOutputs + 2 * output + k % 2];
      }
    }
  }
  return matrix;
}

void to_tile_rows(const bf16* x, std::int64_t inputs, bf16* tiles, int row) {
  constexpr std::int64_t kWidth = 2 * kPairsAlign;
  bf16* to = tiles + row * kWidth;
  std::int64_t k = 0;
  for (; k + kWidth <= inputs; k += kWidth, to += kTileTokens * kWidth)
    std::memcpy(to, x + k, kWidth * sizeof(bf16));
  if (k < inputs) {
    std::fill(to, to + kWidth, bf16{});
    std::copy(x + k, x + inputs, to);
  }
}

}  // namespace tandem::ops::cpu
