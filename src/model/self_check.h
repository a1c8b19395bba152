#pragma once

#include "base/result.h"
#include "model/forward.h"

namespace tandem::model {

// Runs a few tokens and refuses a model that cannot be right: logits that are not finite, or that do not
// differ (weights that were never filled, a norm of zeros). For start-up, after the pools are bound.
//
// The tokens are a prefill row on the trash slot and the scratch page of the bound pools, so nothing that a request could
// own is touched. Every rank calls it at the same time (its collectives are those of any step); only
// rank 0 sees logits and can refuse. Thread: the rank's.
// Errors: Corrupt, saying what was seen; the backend's and communicator's.
[[nodiscard]] Result<void> self_check(ops::Backend& backend, Forward& forward, SlotId trash, PageId scratch);

}  // namespace tandem::model
