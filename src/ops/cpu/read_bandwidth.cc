#include "ops/cpu/read_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/cpu_features.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {

Result<std::unique_ptr<ReadBandwidth>> ReadBandwidth::make(int threads) {
  std::unique_ptr<ReadBandwidth> made(new ReadBandwidth(threads));
  TANDEM_ASSIGN(void* const data, made->memory_.allocate(kBytes, MemoryUse::Scratch, "read bandwidth"));
  made->data_ = static_cast<float*>(data);
  std::fill_n(made->data_, kBytes / sizeof(float), 1.0f);
  return made;
}

double ReadBandwidth::measure(int passes) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // floats: 1 MiB
  constexpr std::int64_t kPieces = static_cast<std::int64_t>(kBytes / sizeof(float)) / kPiece;
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    team_.run(kPieces, [&](std::int64_t i, int) {
      if (!kernels(cpu_isa()).scan_logits(data_ + i * kPiece, kPiece).finite) std::abort();
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(kBytes) / seconds);
  }
  return best;
}

}  // namespace tandem::ops::cpu
