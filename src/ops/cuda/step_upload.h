#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/step_view.h"

namespace tandem::ops::cuda {

// A step's metadata on its way to the device: one pinned copy a step, into one device block whose
// addresses never change. Two pinned buffers alternate, so that step n + 1 is packed while n runs.
//
// Thread: the rank's. The caller owns the buffers (bytes() each); lifetime: the backend's.
class StepUpload {
 public:
  [[nodiscard]] static std::size_t bytes(const StepLimits& limits);
  // Zero-filled: page_table_bytes holds [slots + 1, max_pages] int32, last_sampled [slots + 1] int32.
  [[nodiscard]] static int max_pages(const StepLimits& limits) {
    return (limits.max_context + kPageTokens - 1) / kPageTokens;
  }

  void place(const StepLimits& limits, void* device, void* host[2], std::int32_t* page_table,
             std::int32_t* last_sampled);

  // Packs `step` into the buffer of `parity` and queues its copy. The buffer's earlier copy is done.
  // Error: Invalid if the step is larger than the limits.
  [[nodiscard]] Result<void> upload(const Context& context, const StepView& step, int parity);

  [[nodiscard]] const DeviceStep& step() const { return step_; }

 private:
  StepLimits limits_;
  char* device_ = nullptr;
  char* host_[2] = {};
  DeviceStep step_;
};

}  // namespace tandem::ops::cuda
