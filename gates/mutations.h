#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "ops/backend.h"

namespace tandem::gates {

// Faults that the Hugging Face gate must notice, each on every fixture: a gate that passes with one of
// these built in has no power. They live in a backend around a real one, so that no production type
// knows of them.
enum class Mutation : std::uint8_t {
  NoDecay,               // the recurrent state never fades
  DecayTwice,            // its decay is applied twice
  ValueHeadsSwapped,     // linear attention: the first two value heads change places
  NormPlusOneDropped,    // q_norm multiplies by w, not by 1 + w
  ConvTailLost,          // a later prefill chunk starts with an empty conv window
  StateZeroed,           // a later prefill chunk starts with zero recurrent state
  QueryAndGateExchanged, // a head's two halves of q_proj's output change places
  RopePairOffset,        // rotary pairs lie 128 apart, not 32
  KeyNotNormalised,      // linear attention's keys keep a length
  BetaDropped,           // writes at full strength
  GateBeforeNorm,        // the gated norm gates first
  ResidualLost,          // one block's output replaces the residual instead of joining it
  LayerLost,             // one block's output is left out
  AttentionGateDropped,  // full attention's output gate is not applied
};

struct MutationName {
  Mutation mutation;
  std::string_view name;
};
[[nodiscard]] std::span<const MutationName> all_mutations();

// `inner` with the fault. Slow: it works on host copies of device memory between the operators. Wrap it
// before weights are loaded, since some faults sit in them. Thread, memory, errors: as Backend.
[[nodiscard]] std::unique_ptr<ops::Backend> make_mutating_backend(std::unique_ptr<ops::Backend> inner,
                                                                  Mutation mutation);

}  // namespace tandem::gates
