#pragma once

#include "base/thread_team.h"
#include "ops/backend.h"
#include "ops/cpu/kernels.h"
#include "ops/host_step.h"
#include "ops/sampler_state.h"

// The CPU operators that look at rows, each shared out over a team. Formulas: the operators' own headers.
// Thread: the rank's. None allocates: scratch comes from the caller.

namespace tandem::ops::cpu {

struct Shop {
  ThreadTeam& team;
  const Kernels& kernels;
  const HostStep& step;
  float* scratch;  // [workers, kWorkerScratch], aligned to 64 bytes
};

// cos and sin of every token's position, rounded to bf16. [T, 32] each.
struct Rotations {
  const float* cosine = nullptr;
  const float* sine = nullptr;
};
inline constexpr int kRotaryHalf = kRotaryDim / 2;
// Fills [T, 32] each for the step's tokens.
void rotations(const Shop& shop, float theta, float* cosine, float* sine);

void attention_prepare(const Shop& shop, const AttentionPrepareArgs& args, const Rotations& rotations);
void attention(const Shop& shop, const AttentionArgs& args);

void delta_prepare(const Shop& shop, const DeltaPrepareArgs& args);
void delta_rule(const Shop& shop, const DeltaRuleArgs& args);
void gated_norm(const Shop& shop, const GatedNormArgs& args);
// The three in one pass over the heads.
void delta_mixer(const Shop& shop, const DeltaMixerArgs& args);

// Room for one row of logits and as many ids.
struct SampleScratch {
  float* logits = nullptr;
  TokenId* candidates = nullptr;
};
// Leaves the logits changed.
void sample(const Shop& shop, SamplerState& sampler, const SampleArgs& args, const SampleScratch& scratch,
            TokenChoice* choices);

}  // namespace tandem::ops::cpu
