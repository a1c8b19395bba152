#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/cpu_features.h"

// y = x W^T for a stretch of outputs: the kernels behind linear, linear_swiglu and head.
//
// A packed weight is a list of blocks of kBlockOutputs outputs. A block holds, for each pair of inputs, the
// 32 outputs' two weights side by side: [pairs, 32, 2] bf16. That is the order in which AMX tiles and
// vdpbf16ps want it, one sequential stream for every instruction set, and rows of one line of memory each.
//
// Every output of every token is one chain of float32 additions over the inputs in ascending order, so its
// bits depend neither on the other tokens of the step nor on how the work is cut. Instruction sets differ.

namespace tandem::ops::cpu {

inline constexpr int kBlockOutputs = 32;
inline constexpr int kPairsAlign = 16;  // pairs are padded to this with zeros: one AMX tile's depth
inline constexpr int kSwigluChannels = kBlockOutputs / 2;  // a gate-up block: 16 gates, then their 16 ups

enum class LinearOutput : std::uint8_t {
  Bf16,          // y[t, n] bf16
  RoundedFloat,  // y[t, n] float that went through bf16
  Swiglu,        // y[t, i] bf16 = bf(bf(silu(bf(gate_i))) * bf(up_i)); 16 a block
};

// How a kernel wants the tokens' inputs, each padded with zeros to 2 * pairs.
enum class LinearInput : std::uint8_t {
  Bf16Rows,   // [tokens, 2 * pairs] bf16
  FloatRows,  // the same as float
  Bf16Tiles,  // [tokens / 16, pairs / 16, 16, 32] bf16: one AMX tile after another. Rows of a matrix lie a
              // power of two apart and would fall into the same few sets of the first-level cache
};
inline constexpr int kTileTokens = 16;

struct LinearTask {
  const void* x = nullptr;    // as the kernel's LinearInput
  std::int64_t x_stride = 0;  // elements between tokens (rows) or between groups of 16 tokens (tiles)
  int tokens = 0;
  const bf16* blocks = nullptr;  // the first of `block_count` blocks, one after another
  int block_count = 0;
  std::int64_t pairs = 0;  // a multiple of kPairsAlign
  LinearOutput output = LinearOutput::Bf16;
  void* y = nullptr;          // y[0, first output]
  std::int64_t y_stride = 0;  // elements
  std::int64_t outputs = 0;   // real ones (channels with Swiglu) from the first block on; the rest is padding
};

struct LinearKernel {
  void (*run)(const LinearTask& task) = nullptr;
  LinearInput input = LinearInput::Bf16Rows;
};

// Best kernel of the instruction set.
[[nodiscard]] LinearKernel linear_kernel(CpuIsa isa);

void linear_baseline(const LinearTask& task);
void linear_avx2(const LinearTask& task);
void linear_avx512(const LinearTask& task);
void linear_avx512bf16(const LinearTask& task);
void linear_amx(const LinearTask& task);

}  // namespace tandem::ops::cpu
