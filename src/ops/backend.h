#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/attention.h"
#include "ops/block.h"
#include "ops/delta.h"
#include "ops/embed.h"
#include "ops/head.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/sampling.h"
#include "ops/step_view.h"

namespace tandem::ops {

enum class MemoryUse : std::uint8_t { Weights, Scratch, KvPages, StateSlots, Sampler, Communication };

// One live allocation, for the books of P2b gate 2.
struct Allocation {
  MemoryUse use;
  std::string what;  // "layers.3.linear_attn.out_proj", "state slots"
  std::size_t bytes;
};

struct DeviceInfo {
  std::string name;          // "cpu (amx, 2 threads)", "NVIDIA H200"
  std::string address;       // PCI id, empty on a CPU
  std::string uuid;
  int ordinal = 0;           // logical ordinal
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;
};

// The operator contract: what the forward pass and the rank ask of a device.
//
// Thread: made, used and destroyed on its rank's thread; none of it is thread-safe. Operators are
// queued and done in program order; results are visible to the host after wait().
// Memory: everything a backend hands out lives until the backend is destroyed. After `ready` (the first
// begin_step after the last start-up call) nothing allocates.
// Errors: Device with the operator's name, unless a method says otherwise. Operators with T = 0 do nothing.
//
// Every operator's rule stands in its own header; ops/reference states each one plainly and is the oracle.
class Backend {
 public:
  virtual ~Backend() = default;

  // ---- Start-up -----------------------------------------------------------------------------------

  [[nodiscard]] virtual Result<DeviceInfo> device() = 0;

  // Where the device's work is queued, for comm::Group::join; null on a CPU.
  [[nodiscard]] virtual void* stream() { return nullptr; }

  // Zero-filled device memory, aligned to 256 bytes. Error: Capacity, with what was asked and free.
  [[nodiscard]] virtual Result<void*> allocate(std::size_t bytes, MemoryUse use, std::string_view what) = 0;
  [[nodiscard]] virtual std::span<const Allocation> allocations() const = 0;

  // Weights. The source may be a mapped file: the caller keeps it mapped as long as the backend lives,
  // since a backend may use it in place. load_linear stacks its parts by rows.
  [[nodiscard]] virtual Result<LinearWeight> load_linear(std::span<const HostMatrix> parts, std::string_view what) = 0;
  [[nodiscard]] virtual Result<LinearWeight> load_gate_up(const HostMatrix& gate, const HostMatrix& up,
                                                          std::string_view what) = 0;
  [[nodiscard]] virtual Result<EmbeddingWeight> load_embedding(const HostMatrix& table) = 0;
  // The head of a tied checkpoint: shares the embedding's memory where the layout allows.
  [[nodiscard]] virtual Result<LinearWeight> tie_head(const EmbeddingWeight& embedding) = 0;
  [[nodiscard]] virtual Result<const float*> load_vector(std::span<const float> values, std::string_view what) = 0;

  // The packed weight as row-major [rows, cols] (gate rows, then up rows), read from the buffers that
  // the kernels use (R7.6). For tests.
  [[nodiscard]] virtual Result<std::vector<bf16>> read_back(const LinearWeight& weight) = 0;

  // Sizes metadata, sampler state and internal scratch. Called once, after the weights
  // are loaded and before the first begin_step.
  [[nodiscard]] virtual Result<void> reserve(const StepLimits& limits) = 0;

  // ---- A step -------------------------------------------------------------------------------------

  // Takes in the step's metadata. Every operator until end_step is about this step.
  [[nodiscard]] virtual Result<void> begin_step(const StepView& step) = 0;

  [[nodiscard]] virtual Result<void> embed(const EmbedArgs& args) = 0;
  [[nodiscard]] virtual Result<void> norm(const NormArgs& args) = 0;
  [[nodiscard]] virtual Result<void> reduce_add_norm(const ReduceAddNormArgs& args) = 0;
  [[nodiscard]] virtual Result<void> linear(const LinearArgs& args) = 0;
  [[nodiscard]] virtual Result<void> linear_swiglu(const LinearSwigluArgs& args) = 0;
  [[nodiscard]] virtual Result<void> attention_prepare(const AttentionPrepareArgs& args) = 0;
  [[nodiscard]] virtual Result<void> attention(const AttentionArgs& args) = 0;
  [[nodiscard]] virtual Result<void> delta_prepare(const DeltaPrepareArgs& args) = 0;
  [[nodiscard]] virtual Result<void> delta_rule(const DeltaRuleArgs& args) = 0;
  [[nodiscard]] virtual Result<void> gated_norm(const GatedNormArgs& args) = 0;
  // By default the three stages above, one after another.
  [[nodiscard]] virtual Result<void> delta_mixer(const DeltaMixerArgs& args);
  // By default the operators that its header lists, one after another.
  [[nodiscard]] virtual Result<void> block(const BlockArgs& args);
  [[nodiscard]] virtual Result<void> head(const HeadArgs& args) = 0;
  [[nodiscard]] virtual Result<void> sample(const SampleArgs& args) = 0;

  // Remembers the prompt tokens of the step's prefill rows for the repetition penalty. Rank 0 only.
  [[nodiscard]] virtual Result<void> note_prompt() = 0;
  // Every rank, after the ids' broadcast: ids of sampled logit rows become their slots' last-sampled
  // ids and are counted for the penalties. Scored rows store nothing.
  [[nodiscard]] virtual Result<void> store_sampled(const std::int32_t* ids) = 0;

  // Ends the step. The ticket is good until the second end_step after it: the host may prepare step
  // n + 1 while the device runs n.
  [[nodiscard]] virtual Result<std::uint64_t> end_step() = 0;
  // Blocks until the step of the ticket is done; one choice per logit row, in order (empty on ranks that
  // did not sample). The span lives until the second end_step after the ticket's.
  [[nodiscard]] virtual Result<std::span<const TokenChoice>> wait(std::uint64_t ticket) = 0;

  // ---- Recorded steps (CUDA graphs); a backend without them keeps these defaults ----------------------

  [[nodiscard]] virtual bool can_record() const { return false; }
  // Between begin_step and end_step: the operators in between are recorded for steps of this shape.
  [[nodiscard]] virtual Result<void> begin_recording() { return {}; }
  [[nodiscard]] virtual Result<void> end_recording() { return {}; }
  // After begin_step: true if a recording ran in place of the operators.
  [[nodiscard]] virtual Result<bool> replay() { return false; }

  // ---- Debug and tests ------------------------------------------------------------------------------

  [[nodiscard]] virtual Result<void> copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<void> copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<void> fill_bytes(void* device, std::uint8_t value, std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<void> synchronize() = 0;
};

}  // namespace tandem::ops
