#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "ops/host_step.h"
#include "ops/sampler_state.h"

// Every operator of the contract, once, plainly: the oracle of all others. Rounding as Hugging Face's torch
// path (design.md, "rounding"). Formulas stand in the operators' headers; here they are loops.
//
// Every sum has a fixed order that depends on nothing but its own length, and no operator looks at other
// rows than its own: chunked = whole and mixed = alone, bit for bit.
// Weights are row-major. Thread: the caller's. Scratch is taken from the heap.

namespace tandem::ops::reference {

// `ids[t]` is the resolved id of token t.
void embed(std::span<const TokenId> ids, const EmbedArgs& args);
void norm(const NormArgs& args);
[[nodiscard]] Result<void> reduce_add_norm(const ReduceAddNormArgs& args);
void linear(const LinearArgs& args);
void linear_swiglu(const LinearSwigluArgs& args);
void attention_prepare(const HostStep& step, const AttentionPrepareArgs& args);
void attention(const HostStep& step, const AttentionArgs& args);
void delta_prepare(const HostStep& step, const DeltaPrepareArgs& args);
void delta_rule(const HostStep& step, const DeltaRuleArgs& args);
void gated_norm(const GatedNormArgs& args);
void head(const HostStep& step, const HeadArgs& args);
void sample(const HostStep& step, SamplerState& sampler, const SampleArgs& args, TokenChoice* choices);

}  // namespace tandem::ops::reference
