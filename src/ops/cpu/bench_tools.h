#pragma once

#include <chrono>

#include "base/cpu_features.h"
#include "base/thread_team.h"
#include "ops/cpu/read_bandwidth.h"

// What the CPU benchmarks measure against, on this machine, in this run. Included by benches only.

namespace tandem::ops::cpu {

inline int bench_threads() { return usable_cores(); }

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes per second that all threads read together; the best of several passes.
inline double read_bandwidth() {
  static const double measured = ReadBandwidth::make(bench_threads()).value()->measure(8);
  return measured;
}

}  // namespace tandem::ops::cpu
