#include "ops/sampler_state.h"

#include <limits>

namespace tandem::ops {

Result<void> SamplerState::reserve(const StepLimits& limits, HostMemory& memory) {
  const std::size_t slots = static_cast<std::size_t>(limits.slots) + 1;
  slots_.resize(slots);
  capacity_ = static_cast<std::size_t>(limits.max_context) + 1;
  TANDEM_ASSIGN(void* history, memory.allocate(slots * capacity_ * sizeof(TokenId), MemoryUse::Sampler,
                                               "sampler token history"));
  history_ = static_cast<TokenId*>(history);
  uses_.assign(static_cast<std::size_t>(limits.vocab), -1);
  touched_.reserve(capacity_);
  return {};
}

void SamplerState::bind(SlotId slot, const SamplingParams& params) {
  Slot& s = slots_[index(slot)];
  s.params = params;
  s.remembers = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                params.frequency_penalty != 0.0f;
  s.prompt_tokens = 0;
  s.tokens = 0;
  s.last_sampled = 0;
}

void SamplerState::append(SlotId slot, TokenId id) {
  Slot& s = slots_[index(slot)];
  if (static_cast<std::size_t>(s.tokens) < capacity_) history(slot)[s.tokens++] = id;
}

void SamplerState::add_prompt(SlotId slot, std::span<const TokenId> tokens) {
  Slot& s = slots_[index(slot)];
  if (!s.remembers) return;
  for (const TokenId id : tokens) append(slot, id);
  s.prompt_tokens = s.tokens;
}

void SamplerState::add_output(SlotId slot, TokenId id) {
  Slot& s = slots_[index(slot)];
  s.last_sampled = id;
  if (s.remembers) append(slot, id);
}

void SamplerState::adjust(SlotId slot, int step_index, float* logits, int vocab) {
  const Slot& s = slots_[index(slot)];
  const SamplingParams& p = s.params;
  const auto has_token = [&](TokenId id) { return id >= 0 && id < vocab; };

  for (const auto& [id, bias] : p.logit_bias) {
    if (has_token(id)) logits[id] += bias;
  }
  if (step_index < p.min_tokens) {
    for (const TokenId id : p.stop_ids) {
      if (has_token(id)) logits[id] = -std::numeric_limits<float>::infinity();
    }
  }
  if (!s.remembers) return;

  const TokenId* tokens = history(slot);
  for (std::int32_t i = 0; i < s.tokens; ++i) {
    if (!has_token(tokens[i])) continue;
    std::int32_t& uses = uses_[static_cast<std::size_t>(tokens[i])];
    if (uses < 0) {
      uses = 0;
      touched_.push_back(tokens[i]);
    }
    if (i >= s.prompt_tokens) ++uses;
  }
  for (const TokenId id : touched_) {
    std::int32_t& uses = uses_[static_cast<std::size_t>(id)];
    float& l = logits[id];
    l = l > 0.0f ? l / p.repetition_penalty : l * p.repetition_penalty;
    if (uses > 0) {
      l -= p.frequency_penalty * static_cast<float>(uses);
      l -= p.presence_penalty;
    }
    uses = -1;
  }
  touched_.clear();
}

}  // namespace tandem::ops
