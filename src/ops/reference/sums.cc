#include "ops/reference/sums.h"

#include "base/cpu_features.h"

#define TANDEM_SUMS_NAMESPACE baseline
#include "ops/reference/sums_impl.h"

namespace tandem::ops::reference {

#define TANDEM_DECLARE_SUMS(isa)                                          \
  namespace isa {                                                         \
  float dot(const float* a, const float* b, std::int64_t n);              \
  void add_scaled(float* y, float scale, const float* x, std::int64_t n); \
  void scale(float* y, float by, std::int64_t n);                         \
  void to_floats(float* y, const bf16* x, std::int64_t n);                \
  }
TANDEM_DECLARE_SUMS(avx2)
TANDEM_DECLARE_SUMS(avx512)

namespace {

struct Sums {
  float (*dot)(const float*, const float*, std::int64_t);
  void (*add_scaled)(float*, float, const float*, std::int64_t);
  void (*scale)(float*, float, std::int64_t);
  void (*to_floats)(float*, const bf16*, std::int64_t);
};

const Sums& sums() {
  static const Sums chosen = [] {
    const CpuIsa isa = cpu_isa();
    if (isa >= CpuIsa::Avx512) return Sums{avx512::dot, avx512::add_scaled, avx512::scale, avx512::to_floats};
    if (isa >= CpuIsa::Avx2) return Sums{avx2::dot, avx2::add_scaled, avx2::scale, avx2::to_floats};
    return Sums{baseline::dot, baseline::add_scaled, baseline::scale, baseline::to_floats};
  }();
  return chosen;
}

// ThreadSanitizer does not watch the loops (sums_impl.h). It watches these touches of the first and last byte
// of what a loop reads or writes: two threads that race over a row race over its ends.
#if defined(__SANITIZE_THREAD__)
template <typename T>
void reads(const T* x, std::int64_t n) {
  if (n == 0) return;
  const auto* bytes = reinterpret_cast<const volatile unsigned char*>(x);
  (void)bytes[0];
  (void)bytes[n * static_cast<std::int64_t>(sizeof(T)) - 1];
}
void writes(float* y, std::int64_t n) {
  if (n == 0) return;
  auto* bytes = reinterpret_cast<volatile unsigned char*>(y);
  for (const std::int64_t at : {std::int64_t{0}, n * 4 - 1}) bytes[at] = bytes[at];
}
#else
void reads(const void*, std::int64_t) {}
void writes(const void*, std::int64_t) {}
#endif

}  // namespace

float dot(const float* a, const float* b, std::int64_t n) {
  reads(a, n);
  reads(b, n);
  return sums().dot(a, b, n);
}

void add_scaled(float* y, float by, const float* x, std::int64_t n) {
  writes(y, n);
  reads(x, n);
  sums().add_scaled(y, by, x, n);
}

void scale(float* y, float by, std::int64_t n) {
  writes(y, n);
  sums().scale(y, by, n);
}

void to_floats(float* y, const bf16* x, std::int64_t n) {
  writes(y, n);
  reads(x, n);
  sums().to_floats(y, x, n);
}

}  // namespace tandem::ops::reference
