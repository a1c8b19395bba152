#include "ops/cpu/read_bandwidth.h"

#include <emmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tandem::ops::cpu {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

}  // namespace

Result<std::unique_ptr<ReadBandwidth>> ReadBandwidth::make(int threads) {
  std::unique_ptr<ReadBandwidth> made(new ReadBandwidth(threads));
  TANDEM_ASSIGN(void* const data, made->memory_.allocate(kBytes, MemoryUse::Scratch, "read bandwidth"));
  made->data_ = static_cast<char*>(data);
  std::memset(made->data_, 0, kBytes);  // pages that nobody has written are all the same one
  return made;
}

namespace {

// Eight places of a piece in turn, each asked for ahead of its use: the fastest of the ways to read that were tried on
// a Xeon with AMX (plain reads reach two thirds of it).
std::int64_t sum(const char* piece) {
  constexpr int kStreams = 8;
  constexpr std::size_t kStream = kPiece / kStreams, kAhead = 512;
  __m128i sums[4] = {};
  for (std::size_t at = 0; at < kStream; at += 64) {
    for (std::size_t begin = at; begin < kPiece; begin += kStream) {
      _mm_prefetch(piece + begin + kAhead, _MM_HINT_T0);
      for (std::size_t i = 0; i < 4; ++i)
        sums[i] = _mm_add_epi64(sums[i], _mm_load_si128(reinterpret_cast<const __m128i*>(piece + begin + 16 * i)));
    }
  }
  return _mm_cvtsi128_si64(_mm_add_epi64(_mm_add_epi64(sums[0], sums[1]), _mm_add_epi64(sums[2], sums[3])));
}

}  // namespace

double ReadBandwidth::measure(int passes) {
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    team_.run(static_cast<std::int64_t>(kBytes / kPiece), [&](std::int64_t i, int) {
      if (sum(data_ + static_cast<std::size_t>(i) * kPiece) != 0) std::abort();
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(kBytes) / seconds);
  }
  return best;
}

}  // namespace tandem::ops::cpu
