// The linear kernel without bf16 instructions: weights are widened to float on the way. x is float.
// Included by one file per instruction set, with TANDEM_LINEAR as its name.

#include "ops/cpu/linear_epilogue.h"

namespace tandem::ops::cpu {
namespace {

constexpr int kVectors = kBlockOutputs / kWidth;    // of a block's outputs
constexpr std::int64_t kPairWords = kBlockOutputs;  // 32-bit words of one pair row

// `Tokens` tokens by `Vectors` vectors of outputs, kept in registers over all inputs.
template <int Tokens, int Vectors>
TANDEM_INLINE void tile(const LinearTask& task, const std::uint32_t* block, int first_token, float* out) {
  const float* x = static_cast<const float*>(task.x) + first_token * task.x_stride;
  const I upper = set_int(static_cast<std::int32_t>(0xffff0000));
  for (int v = 0; v < kVectors; v += Vectors) {
    V sums[Tokens][Vectors];
    for (int t = 0; t < Tokens; ++t) {
      for (int i = 0; i < Vectors; ++i) sums[t][i] = zero();
    }
    const std::uint32_t* words_at = block + v * kWidth;
    for (std::int64_t pair = 0; pair < task.pairs; ++pair, words_at += kPairWords) {
      if (Tokens <= 2) __builtin_prefetch(words_at + 16 * kPairWords);
      V first[Vectors], second[Vectors];
      for (int i = 0; i < Vectors; ++i) {
        const I both = load_int(words_at + i * kWidth);
        first[i] = floats(shift_left<16>(both));
        second[i] = floats(and_int(both, upper));
      }
      for (int t = 0; t < Tokens; ++t) {
        const V x0 = set(x[t * task.x_stride + 2 * pair]);
        const V x1 = set(x[t * task.x_stride + 2 * pair + 1]);
        for (int i = 0; i < Vectors; ++i) sums[t][i] = fma(second[i], x1, fma(first[i], x0, sums[t][i]));
      }
    }
    for (int t = 0; t < Tokens; ++t) {
      for (int i = 0; i < Vectors; ++i) store(out + t * kBlockOutputs + (v + i) * kWidth, sums[t][i]);
    }
  }
}

// One token streams the whole block; more tokens take as many sums as there are registers.
constexpr int kManyVectors = kWidth == 16 ? 2 : kVectors / 2;
constexpr int kMostTokens = kWidth == 16 ? 8 : (kWidth == 8 ? 5 : 3);

}  // namespace

void TANDEM_LINEAR(const LinearTask& task) {
  alignas(64) float out[kMostTokens * kBlockOutputs];
  for (int b = 0; b < task.block_count; ++b) {
    const auto* block = reinterpret_cast<const std::uint32_t*>(task.blocks) + b * task.pairs * kPairWords;
    for (int t = 0; t < task.tokens;) {
      const int left = task.tokens - t;
      int done = 1;
      if (left >= kMostTokens) {
        tile<kMostTokens, kManyVectors>(task, block, t, out);
        done = kMostTokens;
      } else if (left >= 2) {
        tile<2, kManyVectors>(task, block, t, out);
        done = 2;
      } else {
        tile<1, kVectors>(task, block, t, out);
      }
      finish_tile(task, out, t, done, b);
      t += done;
    }
  }
}

}  // namespace tandem::ops::cpu
