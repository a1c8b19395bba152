#pragma once

#include "base/bf16.h"
#include "ops/view.h"

namespace tandem::ops {

// The embedding table as the backend keeps it (row-major [V, H] bf16). Made by Backend::load_embedding.
struct EmbeddingWeight {
  const bf16* table = nullptr;  // device memory
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
};

// Embedding lookup (spec 3.1): x[t,:] = table[tokens[t], :] with kLastSampled read from the row's slot.
// T tokens of the step, H hidden size. Ids are < vocab: the controller checks (R2.5).
struct EmbedArgs {
  EmbeddingWeight weight;
  View<bf16, 2> x;  // [T, H]
};

}  // namespace tandem::ops
