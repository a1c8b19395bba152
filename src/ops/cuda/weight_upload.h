#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "base/bf16.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/linear.h"

namespace tandem::ops::cuda {

// Weights on their way from mapped files to the device: several threads copy pages of the file into
// pinned buffers while earlier buffers travel, so reading, faulting and PCIe overlap.
//
// Thread: the rank's; its helper threads touch host memory only. Lives from the first weight to `finish`.
class WeightUpload {
 public:
  static constexpr std::size_t kBufferBytes = 16u << 20;
  static constexpr int kBuffers = 4;
  static constexpr int kCopyThreads = 4;

  ~WeightUpload();
  [[nodiscard]] Result<void> open();

  // Queues source -> destination (row-major, no gaps). The source is read before this returns.
  [[nodiscard]] Result<void> copy(const Context& context, const HostMatrix& source, bf16* destination);

  // Waits for the last copy and frees the pinned buffers.
  [[nodiscard]] Result<void> finish(const Context& context);

 private:
  void* buffers_[kBuffers] = {};
  cudaEvent_t done_[kBuffers] = {};
  int next_ = 0;
};

}  // namespace tandem::ops::cuda
