#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "ops/host_memory.h"
#include "ops/sampling.h"
#include "ops/step_view.h"

namespace tandem::ops {

// What a host sampler remembers of every slot: its settings, the id sampled last, and, for requests
// with penalties, every token so far.
//
// Thread: the backend's.
class SamplerState {
 public:
  [[nodiscard]] Result<void> reserve(const StepLimits& limits, HostMemory& memory);

  // A request's first row: its settings, and an empty past.
  void bind(SlotId slot, const SamplingParams& params);
  void add_prompt(SlotId slot, std::span<const TokenId> tokens);
  // One more output token, which is also the input of the slot's next decode row.
  void add_output(SlotId slot, TokenId id);

  [[nodiscard]] const SamplingParams& params(SlotId slot) const { return slots_[index(slot)].params; }
  [[nodiscard]] TokenId last_sampled(SlotId slot) const { return slots_[index(slot)].last_sampled; }

  // Logit bias, the min_tokens mask and the penalties, in the order of the design, written into the
  // row's logits. `step_index`: tokens generated before. Touches only the ids that these name.
  void adjust(SlotId slot, int step_index, float* logits, int vocab);

 private:
  struct Slot {
    SamplingParams params;
    bool remembers = false;  // has penalties, so its tokens are kept
    std::int32_t prompt_tokens = 0;
    std::int32_t tokens = 0;  // prompt and output
    TokenId last_sampled = 0;
  };

  [[nodiscard]] static std::size_t index(SlotId slot) { return static_cast<std::size_t>(slot.value); }
  [[nodiscard]] TokenId* history(SlotId slot) { return history_ + index(slot) * capacity_; }
  void append(SlotId slot, TokenId id);

  std::vector<Slot> slots_;         // slots + 1: the trash slot stands last
  std::size_t capacity_ = 0;        // tokens a slot can remember
  TokenId* history_ = nullptr;      // [slots + 1, capacity_]
  std::vector<std::int32_t> uses_;  // [vocab] how often the output used an id; all -1 between calls
  std::vector<TokenId> touched_;    // the ids of uses_ that are not -1
};

}  // namespace tandem::ops
