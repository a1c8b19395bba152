#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/bf16.h"
#include "ops/cuda/block_split.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

inline constexpr int kBlockTokens = 8;     // the width of a warp's product
inline constexpr int kBlockConsumers = 8;  // warps; each takes 64 of a unit's inputs
inline constexpr int kUnitBytes = kUnitRows * kUnitCols * 2;
inline constexpr int kBlockMostStages = 12;

// One product of the block kernel. `map` fetches units: [64 inputs, 8 chunks of 64, 16 rows] with 128-byte swizzle
// (DeviceMatrix::units).
struct BlockProduct {
  CUtensorMap map;
  BlockSplit split;
  int rows_a_tile;  // what a tile advances in the map: 16, or 8 where gate and up rows alternate
};

// T tokens, H hidden size, V, I, N inputs and outputs as in ops/block.h. All widths are multiples of 64.
struct BlockKernelArgs {
  BlockProduct products[4];  // out, gate|up, down, next; the last has no tiles after the last layer
  const bf16* mixed;         // [T, V]
  bf16* residual;            // [T, H]
  bf16* middle;              // [T, H] dense: the residual between the two additions, for few tokens
  bf16* act;                 // [T, I]
  bf16* projected;           // [T, N]
  bf16* hidden;              // [T, H] written after the last layer only
  const float* norms[2];     // [H] post_norm, next_norm
  float* partials;           // [slots of the split, T, H]
  unsigned long long* barrier;  // [2] GridBarrier's
  std::int64_t mixed_stride, residual_stride, act_stride, projected_stride, hidden_stride;  // elements
  int tokens, hidden_width, mixed_width, act_width, projected_width;
  int slots_a_group[2];  // pieces of a strip at most, of out and down
  int stages;            // of the ring
  int in_flight_busy, in_flight_idle;  // units asked for and not yet there, while blocks multiply and else; < stages
  int x_stride;          // elements between tokens of the activations in shared memory
  int share;             // pairs of the hidden values that a block owns
  float eps;
};

// Shared memory of a block.
[[nodiscard]] std::size_t block_kernel_shared_bytes(const BlockKernelArgs& args);
// All that a block may have. The mixers' blocks then wait for one of these to end, but with two units less for the ring
// every layer took 2 us more (H200, docs/benchmarks).
inline constexpr std::size_t kBlockSharedLimit = 227 * 1024;

[[nodiscard]] Result<void> prepare_block_kernel();
// One block a multiprocessor, all resident at once.
[[nodiscard]] Result<void> launch_block_kernel(const Context& context, const BlockKernelArgs& args);

}  // namespace tandem::ops::cuda
