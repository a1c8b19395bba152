#pragma once

#include <cstdint>
#include <vector>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/head.h"
#include "ops/step_view.h"

namespace tandem::ops::cuda {

// Sampling on the device: every slot's settings and token counts live there, no logits come back.
// Reference: ops/reference/sample.cc; equal logits give equal tokens.
//
// Thread: the rank's. Device memory is handed in by the backend, which owns it.
class Sampler {
 public:
  // Bytes of the per-slot books: settings, counts of generated ids, bit set of prompt ids.
  [[nodiscard]] static std::size_t state_bytes(const StepLimits& limits);
  // Bytes of one step's bindings in pinned memory.
  [[nodiscard]] static std::size_t staging_bytes(const StepLimits& limits);

  // Takes its memory and sets the kernel up on this device (R1.5). Error: Device.
  [[nodiscard]] Result<void> place(const StepLimits& limits, void* state, void* staging_device, void* staging_host[2]);

  // Queues the binding of the settings that the step's first rows bring; `parity` chooses the staging
  // buffer (steps alternate). Nothing if no row binds.
  [[nodiscard]] Result<void> bind(const Context& context, const StepView& step, int parity);
  [[nodiscard]] Result<void> note_prompt(const Context& context, const DeviceStep& step);
  [[nodiscard]] Result<void> sample(const Context& context, const DeviceStep& step, const SampleArgs& args,
                                    TokenChoice* choices);
  // Counts the sampled ids of the step for the penalties.
  [[nodiscard]] Result<void> count(const Context& context, const DeviceStep& step, const std::int32_t* ids);

 private:
  StepLimits limits_;
  void* state_ = nullptr;
  void* staging_device_ = nullptr;
  void* staging_host_[2] = {};
};

}  // namespace tandem::ops::cuda
