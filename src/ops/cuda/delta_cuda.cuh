#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/delta.h"

namespace tandem::ops::cuda {

// Decode rows: conv update, SiLU, l2 norm, gates, recurrence and gated norm in one pass that reads and
// writes the recurrent state once. Reference: ops/reference/delta_*.cc.
// Moves 131,072 bytes a row and value head; limit: memory.
[[nodiscard]] Result<void> delta_decode(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args);

// The same for many rows: states stream through shared memory by the bulk copy engine.
[[nodiscard]] Result<void> delta_decode_stream(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args);
[[nodiscard]] Result<void> prepare_delta_stream();

// Prefill rows: prepare (conv, SiLU, l2 norm, gates), the chunked WY form, gated norm.
[[nodiscard]] Result<void> delta_prefill(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args);

// The three stages of the contract, for all rows of the step.
[[nodiscard]] Result<void> delta_prepare(const Context& context, const DeviceStep& step, const DeltaPrepareArgs& args);
[[nodiscard]] Result<void> delta_rule(const Context& context, const DeviceStep& step, const DeltaRuleArgs& args);
[[nodiscard]] Result<void> gated_norm(const Context& context, const GatedNormArgs& args);

// The same for rows from first_row (whose first token is first_token) on: rows before them are decode rows.
[[nodiscard]] Result<void> delta_prepare_rows(const Context& context, const DeviceStep& step, const DeltaPrepareArgs& args,
                                              int first_row, int first_token);
[[nodiscard]] Result<void> delta_recurrent_rows(const Context& context, const DeviceStep& step, const DeltaRuleArgs& args,
                                                int first_row);

// What has to be set on this device before the first launch (R1.5).
[[nodiscard]] Result<void> prepare_delta(const Context& context);

}  // namespace tandem::ops::cuda
