#pragma once

#include <vector>

#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {

// What the forward pass sees of a rank's KV pages and state slots: one view per layer that has any.
// src/memory owns the bytes and makes the views; they live as long as the backend.
struct PoolViews {
  std::vector<ops::KvPages> kv;        // one per full-attention layer, in layer order
  std::vector<ops::DeltaState> state;  // one per linear-attention layer, in layer order
};

}  // namespace tandem::model
