// Included by one file per instruction set, each with its own TANDEM_SUMS_NAMESPACE. Vectors of 16 floats
// in the compiler's own notation: every instruction set does the same additions in the same order.

#include <cstdint>
#include <cstring>

#include "base/bf16.h"

// ThreadSanitizer does not watch these loops, which are most of what a test under it would wait for; it
// watches the ends of every array that goes into them (sums.cc).
#if defined(__SANITIZE_THREAD__)
#define TANDEM_UNWATCHED __attribute__((no_sanitize("thread")))
#else
#define TANDEM_UNWATCHED
#endif

namespace tandem::ops::reference::TANDEM_SUMS_NAMESPACE {

using Floats = float __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

TANDEM_UNWATCHED inline void load(Floats& to, const float* from) { std::memcpy(&to, from, sizeof to); }

TANDEM_UNWATCHED float dot(const float* a, const float* b, std::int64_t n) {
  Floats low{}, high{};
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    Floats a0, a1, b0, b1;
    load(a0, a + i);
    load(a1, a + i + 16);
    load(b0, b + i);
    load(b1, b + i + 16);
    low += a0 * b0;
    high += a1 * b1;
  }
  float sums[32];
  std::memcpy(sums, &low, sizeof low);
  std::memcpy(sums + 16, &high, sizeof high);
  for (int lane = 0; i < n; ++i, ++lane) sums[lane] += a[i] * b[i];
  for (int width = 16; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

TANDEM_UNWATCHED void add_scaled(float* y, float scale, const float* x, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Floats ys, xs;
    load(ys, y + i);
    load(xs, x + i);
    ys += scale * xs;
    std::memcpy(y + i, &ys, sizeof ys);
  }
  for (; i < n; ++i) y[i] += scale * x[i];
}

TANDEM_UNWATCHED void scale(float* y, float by, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Floats ys;
    load(ys, y + i);
    ys *= by;
    std::memcpy(y + i, &ys, sizeof ys);
  }
  for (; i < n; ++i) y[i] *= by;
}

TANDEM_UNWATCHED void to_floats(float* y, const bf16* x, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Halves halves;
    std::memcpy(&halves, x + i, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(y + i, &words, sizeof words);
  }
  for (; i < n; ++i) {
    const std::uint32_t word = std::uint32_t{x[i].bits} << 16;
    std::memcpy(y + i, &word, sizeof word);
  }
}

}  // namespace tandem::ops::reference::TANDEM_SUMS_NAMESPACE
