#pragma once

#include "base/result.h"
#include "rank/step.h"

namespace tandem::executor {

// R2.5: whether the step could be run at all, as far as the controller can see without knowing what the
// ranks hold: rows, ids, sizes, chunk shapes, order. Error: Invalid, naming the row.
// `mixed`: whether decode and prefill rows may stand in one step.
[[nodiscard]] Result<void> check_step(const rank::Step& step, const rank::Capacity& capacity, bool mixed);

// R2.4: whether the result has exactly the artifacts that the step owes, in any order.
// Error: Protocol, naming the request.
[[nodiscard]] Result<void> check_artifacts(const rank::Step& step, const rank::StepResult& result,
                                           const rank::Capacity& capacity);

// How many prompt tokens the row scores (prompt_logprobs).
[[nodiscard]] std::int32_t scored_prompt_tokens(const rank::Row& row);

}  // namespace tandem::executor
