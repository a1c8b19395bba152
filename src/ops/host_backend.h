#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/host_memory.h"
#include "ops/host_step.h"
#include "ops/sampler_state.h"

namespace tandem::ops {

// What backends on the host share: memory, the step's metadata, the sampler's memory and tickets.
// Their operators are done when they return, so wait() never waits.
//
// Thread, memory, errors: as Backend.
class HostBackend : public Backend {
 public:
  // `name` is what people see: "cpu (amx, 2 threads)".
  explicit HostBackend(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] Result<DeviceInfo> device() override;
  [[nodiscard]] Result<void*> allocate(std::size_t bytes, MemoryUse use, std::string_view what) override;
  [[nodiscard]] std::span<const Allocation> allocations() const override;
  [[nodiscard]] Result<LinearWeight> load_linear(std::span<const HostMatrix> parts,
                                                 std::string_view what) override;
  [[nodiscard]] Result<LinearWeight> load_gate_up(const HostMatrix& gate, const HostMatrix& up,
                                                  std::string_view what) override;
  // The table is used where it lies: a mapped checkpoint is read row by row as tokens name them.
  [[nodiscard]] Result<EmbeddingWeight> load_embedding(const HostMatrix& table) override;
  [[nodiscard]] Result<const float*> load_vector(std::span<const float> values,
                                                 std::string_view what) override;
  [[nodiscard]] Result<void> reserve(const StepLimits& limits) override;

  [[nodiscard]] Result<void> begin_step(const StepView& step) override;
  [[nodiscard]] Result<void> note_prompt() override;
  [[nodiscard]] Result<void> store_sampled(const std::int32_t* ids) override;
  [[nodiscard]] Result<std::uint64_t> end_step() override;
  [[nodiscard]] Result<std::span<const TokenChoice>> wait(std::uint64_t ticket) override;

  [[nodiscard]] Result<void> copy_to_host(void* host, const void* device, std::size_t bytes) override;
  [[nodiscard]] Result<void> copy_to_device(void* device, const void* host, std::size_t bytes) override;
  [[nodiscard]] Result<void> fill_bytes(void* device, std::uint8_t value, std::size_t bytes) override;
  [[nodiscard]] Result<void> synchronize() override { return {}; }

 protected:
  enum class Stacked : bool { Plain, GateUp };
  // `parts` have equal widths, and of gate and up equal heights.
  [[nodiscard]] virtual Result<LinearWeight> pack(std::span<const HostMatrix> parts, Stacked stacked,
                                                  std::string_view what) = 0;

  [[nodiscard]] const HostStep& step() const { return step_; }
  [[nodiscard]] SamplerState& sampler() { return sampler_; }
  [[nodiscard]] HostMemory& memory() { return memory_; }
  // The token that stands at `token` of the step: given, or the one sampled last for the row's slot.
  [[nodiscard]] TokenId input_token(const StepRow& row, int token) const;
  // Where the choices of the step's logit rows go; marks the step as one that sampled.
  [[nodiscard]] TokenChoice* choices();

 private:
  // The caller may still read the choices of two earlier steps while one is made.
  static constexpr std::size_t kStepsKept = 3;
  struct Choices {
    std::vector<TokenChoice> rows;
    std::size_t count = 0;
  };

  const std::string name_;
  HostMemory memory_;
  HostStep step_;
  SamplerState sampler_;
  std::array<Choices, kStepsKept> choices_;
  std::uint64_t ticket_ = 0;  // of the step that is being made: the number of steps ended before, plus 1
};

}  // namespace tandem::ops
