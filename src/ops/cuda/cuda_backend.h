#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "ops/cuda/block_cuda.h"
#include "ops/cuda/context.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/sample_cuda.h"
#include "ops/cuda/step_upload.h"
#include "ops/cuda/weight_upload.h"

namespace tandem::ops::cuda {

// One rank's device: the operator contract on an NVIDIA GPU of compute capability 9.0.
//
// Thread: the rank's, which the device is bound to for its life. Everything queued runs in program order
// on one non-blocking stream; the legacy default stream is never used.
class CudaBackend final : public Backend {
 public:
  // Binds logical device `ordinal` to the calling thread.
  // Errors: Unsupported (no driver, no such device, compute capability), Device.
  [[nodiscard]] static Result<std::unique_ptr<CudaBackend>> open(int ordinal);
  ~CudaBackend() override;

  [[nodiscard]] Result<DeviceInfo> device() override;
  [[nodiscard]] void* stream() override { return context_.stream; }
  [[nodiscard]] Result<void*> allocate(std::size_t bytes, MemoryUse use, std::string_view what) override;
  [[nodiscard]] std::span<const Allocation> allocations() const override { return allocations_; }

  [[nodiscard]] Result<LinearWeight> load_linear(std::span<const HostMatrix> parts, std::string_view what) override;
  [[nodiscard]] Result<LinearWeight> load_gate_up(const HostMatrix& gate, const HostMatrix& up,
                                                  std::string_view what) override;
  [[nodiscard]] Result<EmbeddingWeight> load_embedding(const HostMatrix& table) override;
  [[nodiscard]] Result<LinearWeight> tie_head(const EmbeddingWeight& embedding) override;
  [[nodiscard]] Result<const float*> load_vector(std::span<const float> values, std::string_view what) override;
  [[nodiscard]] Result<std::vector<bf16>> read_back(const LinearWeight& weight) override;
  [[nodiscard]] Result<void> reserve(const StepLimits& limits) override;

  [[nodiscard]] Result<void> begin_step(const StepView& step) override;
  [[nodiscard]] Result<void> embed(const EmbedArgs& args) override;
  [[nodiscard]] Result<void> norm(const NormArgs& args) override;
  [[nodiscard]] Result<void> reduce_add_norm(const ReduceAddNormArgs& args) override;
  [[nodiscard]] Result<void> linear(const LinearArgs& args) override;
  [[nodiscard]] Result<void> linear_swiglu(const LinearSwigluArgs& args) override;
  [[nodiscard]] Result<void> attention_prepare(const AttentionPrepareArgs& args) override;
  [[nodiscard]] Result<void> attention(const AttentionArgs& args) override;
  [[nodiscard]] Result<void> delta_prepare(const DeltaPrepareArgs& args) override;
  [[nodiscard]] Result<void> delta_rule(const DeltaRuleArgs& args) override;
  [[nodiscard]] Result<void> gated_norm(const GatedNormArgs& args) override;
  [[nodiscard]] Result<void> delta_mixer(const DeltaMixerArgs& args) override;
  [[nodiscard]] Result<void> block(const BlockArgs& args) override;
  [[nodiscard]] Result<void> head(const HeadArgs& args) override;
  [[nodiscard]] Result<void> sample(const SampleArgs& args) override;
  [[nodiscard]] Result<void> note_prompt() override;
  [[nodiscard]] Result<void> store_sampled(const std::int32_t* ids) override;
  [[nodiscard]] Result<std::uint64_t> end_step() override;
  [[nodiscard]] Result<std::span<const TokenChoice>> wait(std::uint64_t ticket) override;

  [[nodiscard]] bool can_record() const override { return true; }
  [[nodiscard]] Result<void> begin_recording() override;
  [[nodiscard]] Result<void> end_recording() override;
  [[nodiscard]] Result<bool> replay() override;

  [[nodiscard]] Result<void> copy_to_host(void* host, const void* device, std::size_t bytes) override;
  [[nodiscard]] Result<void> copy_to_device(void* device, const void* host, std::size_t bytes) override;
  [[nodiscard]] Result<void> fill_bytes(void* device, std::uint8_t value, std::size_t bytes) override;
  [[nodiscard]] Result<void> synchronize() override;

  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] Gemm& gemm() { return gemm_; }

 private:
  CudaBackend() : gemm_(context_) {}

  struct Recording {
    int rows = 0;
    int logit_rows = 0;
    cudaGraphExec_t graph = nullptr;
  };
  [[nodiscard]] Result<LinearWeight> load_stacked(std::span<const HostMatrix> parts, bool gate_up, std::string_view what);
  [[nodiscard]] Result<void*> pinned(std::size_t bytes);

  Context context_;
  Gemm gemm_;
  WeightUpload upload_;
  StepUpload steps_;
  Sampler sampler_;
  DecodeBlock block_;
  std::vector<Allocation> allocations_;
  std::vector<void*> device_memory_;
  std::vector<void*> pinned_memory_;
  std::vector<std::unique_ptr<DeviceMatrix>> matrices_;
  std::vector<Recording> recordings_;

  StepLimits limits_;
  std::uint64_t step_number_ = 0;  // of the step being queued; its parity chooses the buffers
  cudaEvent_t done_[2] = {};       // end of the step of each parity
  bool sampled_[2] = {};
  int choice_count_[2] = {};
  TokenChoice* choices_ = nullptr;          // device
  TokenChoice* host_choices_[2] = {};       // pinned
  float* attention_partials_ = nullptr;
  bf16* gathered_ = nullptr;                // hidden rows of the head's product
  bf16* narrow_logits_ = nullptr;           // its bf16 result
  std::int64_t hidden_ = 0;
};

}  // namespace tandem::ops::cuda
