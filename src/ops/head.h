#pragma once

#include "base/bf16.h"
#include "ops/linear.h"
#include "ops/sampling.h"
#include "ops/view.h"

namespace tandem::ops {

// logits[r,:] = bf16(head * hidden[logit_rows[first + r].token, :]) as float32 (spec 3.7), for the
// step's logit rows [first, first + count). Rank 0 only (R1.7).
struct HeadArgs {
  View<const bf16, 2> hidden;  // [T, H] after the final norm
  LinearWeight weight;         // [V, H]
  View<float, 2> logits;       // [count, V]
  int first = 0;
};

// Chooses or scores a token for the logit rows [first, first + count) by each slot's SamplingParams
// and writes ids[first + r] (device memory; the target for scored rows). `vocab` is the number of ids that have a token: ids beyond are never
// sampled (design, ids without a token) but count in the softmax. May overwrite the logits.
struct SampleArgs {
  View<float, 2> logits;       // [count, V]
  std::int32_t* ids;           // [logit rows of the step]
  int first = 0;
  int vocab = 0;
  LogprobsMode mode = LogprobsMode::Raw;
};

}  // namespace tandem::ops
