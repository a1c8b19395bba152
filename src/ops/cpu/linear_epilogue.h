// What happens to a finished tile of float32 sums. Included by kernel files of one instruction set.

#pragma once

#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

// One token's 32 sums of block `block`.
TANDEM_INLINE void finish_row(const LinearTask& task, const float* sums, int token, int block) {
  const bool swiglu = task.output == LinearOutput::Swiglu;
  const std::int64_t width = swiglu ? kSwigluChannels : kBlockOutputs;
  const std::int64_t first = block * width;
  const std::int64_t outputs = task.outputs - first < width ? task.outputs - first : width;
  const std::int64_t at = token * task.y_stride + first;
  if (task.output == LinearOutput::RoundedFloat) {
    alignas(64) float rounded[kBlockOutputs];
    for (int i = 0; i < kBlockOutputs; i += kWidth) store(rounded + i, round_bf16(load(sums + i)));
    float* y = static_cast<float*>(task.y) + at;
    for (std::int64_t i = 0; i < outputs; ++i) y[i] = rounded[i];
    return;
  }
  bf16* y = static_cast<bf16*>(task.y) + at;
  alignas(64) bf16 partial[kBlockOutputs];
  bf16* to = outputs == width ? y : partial;
  if (swiglu) {
    for (int i = 0; i < kSwigluChannels; i += kWidth) {
      const V gate = round_bf16(load(sums + i));
      const V up = round_bf16(load(sums + kSwigluChannels + i));
      store(to + i, mul(round_bf16(silu(gate)), up));
    }
  } else {
    for (int i = 0; i < kBlockOutputs; i += kWidth) store(to + i, load(sums + i));
  }
  if (to == partial) {
    for (std::int64_t i = 0; i < outputs; ++i) y[i] = partial[i];
  }
}

// tile: [tokens, 32] sums; token 0 of the tile is `first_token` of the task.
TANDEM_INLINE void finish_tile(const LinearTask& task, const float* tile, int first_token, int tokens,
                               int block) {
  for (int t = 0; t < tokens; ++t) finish_row(task, tile + t * kBlockOutputs, first_token + t, block);
}

}  // namespace
}  // namespace tandem::ops::cpu
