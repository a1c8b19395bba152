#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/l2_flush.cuh"

namespace tandem::ops::cuda {

// For benches: device time, by events, of work that finds nothing of its own in the L2. The backend must live longer;
// the flush's 256 MiB and the events live until the process ends. Thread: the rank's.
class ColdTimer {
 public:
  explicit ColdTimer(CudaBackend& backend)
      : backend_(backend), flush_(backend.allocate(kFlushBytes, MemoryUse::Scratch, "L2 flush").value()) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }

  // Median microseconds of `runs` runs after two that do not count; 0 after a failure, which is printed.
  double median(const std::function<Result<void>()>& run, int runs) {
    const Context& context = backend_.context();
    std::vector<float> times;
    for (int i = 0; i < runs + 2; ++i) {
      (void)flush_l2(context, flush_, kFlushBytes, static_cast<unsigned*>(flush_));
      cudaEventRecord(begin_, context.stream);
      if (const auto result = run(); !result) {
        std::printf("%s\n", result.error().message.c_str());
        return 0;
      }
      cudaEventRecord(end_, context.stream);
      cudaEventSynchronize(end_);
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, begin_, end_);
      if (i >= 2) times.push_back(milliseconds * 1000);
    }
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return times[static_cast<std::size_t>(runs / 2)];
  }

 private:
  static constexpr std::size_t kFlushBytes = 256u << 20;
  CudaBackend& backend_;
  void* flush_;
  cudaEvent_t begin_{}, end_{};
};

}  // namespace tandem::ops::cuda
