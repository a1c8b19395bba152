#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "base/cpu_features.h"
#include "base/thread_team.h"
#include "ops/cpu/kernels.h"
#include "ops/host_memory.h"

// What the CPU benchmarks measure against, on this machine, in this run. Included by benches only.

namespace tandem::ops::cpu {

inline int bench_threads() { return usable_cores(); }

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes per second that all threads read together from 1 GiB of huge pages; the best of several passes.
inline double read_bandwidth() {
  static const double measured = [] {
    constexpr std::int64_t kBytes = std::int64_t{1} << 30;
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    HostMemory memory;
    auto* data = static_cast<float*>(memory.allocate(kBytes, MemoryUse::Scratch, "bandwidth").value());
    std::fill(data, data + kBytes / 4, 1.0f);
    ThreadTeam team(bench_threads());
    double best = 0;
    for (int pass = 0; pass < 8; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      team.run(kBytes / kPiece, [&](std::int64_t i, int) {
        if (!kernels(cpu_isa()).scan_logits(data + i * (kPiece / 4), kPiece / 4).finite) std::abort();
      });
      best = std::max(best, static_cast<double>(kBytes) / seconds_since(start));
    }
    return best;
  }();
  return measured;
}

}  // namespace tandem::ops::cpu
