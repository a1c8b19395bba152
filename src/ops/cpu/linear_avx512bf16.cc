#include "ops/cpu/linear_epilogue.h"

namespace tandem::ops::cpu {
namespace {

constexpr int kMostTokens = 12;  // 24 of 32 registers hold sums
constexpr std::int64_t kPairBytes = kBlockOutputs * 4;
constexpr std::int64_t kPrefetchBytes = 4096;

template <int Tokens>
TANDEM_INLINE void tile(const LinearTask& task, const char* block, int first_token, float* out) {
  const auto* x = static_cast<const bf16*>(task.x) + first_token * task.x_stride;
  __m512 low[Tokens], high[Tokens];
  for (int t = 0; t < Tokens; ++t) low[t] = high[t] = _mm512_setzero_ps();
  for (std::int64_t pair = 0; pair < task.pairs; ++pair, block += kPairBytes) {
    if (task.tokens <= kMostTokens) {  // the only pass over these weights
      _mm_prefetch(block + kPrefetchBytes, _MM_HINT_T0);
      _mm_prefetch(block + kPrefetchBytes + 64, _MM_HINT_T0);
    }
    const auto w0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(block));
    const auto w1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(block + 64));
    for (int t = 0; t < Tokens; ++t) {
      std::int32_t both;
      __builtin_memcpy(&both, x + t * task.x_stride + 2 * pair, sizeof both);
      const auto xs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
      low[t] = _mm512_dpbf16_ps(low[t], w0, xs);
      high[t] = _mm512_dpbf16_ps(high[t], w1, xs);
    }
  }
  for (int t = 0; t < Tokens; ++t) {
    _mm512_store_ps(out + t * kBlockOutputs, low[t]);
    _mm512_store_ps(out + t * kBlockOutputs + 16, high[t]);
  }
}

// One token: memory gives a thread more from eight places at once than from one, so eight blocks advance together.
constexpr int kStreams = 8;
constexpr std::int64_t kStreamAhead = 1024;

TANDEM_INLINE void eight_blocks(const LinearTask& task, const char* block, float* out) {
  const auto* x = static_cast<const bf16*>(task.x);
  const std::int64_t block_bytes = task.pairs * kPairBytes;
  __m512 low[kStreams], high[kStreams];
  for (int s = 0; s < kStreams; ++s) low[s] = high[s] = _mm512_setzero_ps();
  for (std::int64_t pair = 0; pair < task.pairs; ++pair, block += kPairBytes) {
    std::int32_t both;
    __builtin_memcpy(&both, x + 2 * pair, sizeof both);
    const auto xs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const char* at = block + s * block_bytes;
      _mm_prefetch(at + kStreamAhead, _MM_HINT_T0);
      _mm_prefetch(at + kStreamAhead + 64, _MM_HINT_T0);
      low[s] = _mm512_dpbf16_ps(low[s], reinterpret_cast<__m512bh>(_mm512_loadu_si512(at)), xs);
      high[s] = _mm512_dpbf16_ps(high[s], reinterpret_cast<__m512bh>(_mm512_loadu_si512(at + 64)), xs);
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) {
    _mm512_store_ps(out + s * kBlockOutputs, low[s]);
    _mm512_store_ps(out + s * kBlockOutputs + 16, high[s]);
  }
}

}  // namespace

void linear_avx512bf16(const LinearTask& task) {
  alignas(64) float out[kMostTokens * kBlockOutputs];
  int b = 0;
  if (task.tokens == 1) {
    for (; b + kStreams <= task.block_count; b += kStreams) {
      eight_blocks(task, reinterpret_cast<const char*>(task.blocks) + b * task.pairs * kPairBytes, out);
      for (int s = 0; s < kStreams; ++s) finish_tile(task, out + s * kBlockOutputs, 0, 1, b + s);
    }
  }
  for (; b < task.block_count; ++b) {
    const auto* block = reinterpret_cast<const char*>(task.blocks) + b * task.pairs * kPairBytes;
    for (int t = 0; t < task.tokens;) {
      const int left = task.tokens - t;
      int done = 0;
      if (left >= 12) {
        tile<12>(task, block, t, out), done = 12;
      } else if (left >= 8) {
        tile<8>(task, block, t, out), done = 8;
      } else if (left >= 4) {
        tile<4>(task, block, t, out), done = 4;
      } else if (left >= 2) {
        tile<2>(task, block, t, out), done = 2;
      } else {
        tile<1>(task, block, t, out), done = 1;
      }
      finish_tile(task, out, t, done, b);
      t += done;
    }
  }
}

}  // namespace tandem::ops::cpu
