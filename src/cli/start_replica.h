#pragma once

#include <memory>

#include "base/result.h"
#include "cli/replica_flags.h"
#include "engine/engine.h"
#include "executor/start_executor.h"
#include "text/tokenizer.h"

namespace tandem::cli {

// The one path from flags to a model that runs in this process: of serve, chat, bench and soak.

// Options that start-up does not refuse, and what it will do with them.
struct PlannedReplica {
  Replica options;
  executor::StartPlan plan;
};

// Every refusal of ranks and engine, before any weight is read (R6).
// Errors: plan_start's and check_options', with the option, its value and what works.
[[nodiscard]] Result<PlannedReplica> plan_replica(Replica options);
// to_options() first.
[[nodiscard]] Result<PlannedReplica> plan_replica(const ReplicaFlags& flags);

// A tokenizer of another model, the usual cause of an id beyond the embedding, makes prompts that cannot be run.
// Error: Invalid, with the token, its id and the model's vocabulary.
[[nodiscard]] Result<void> check_tokenizer(const PlannedReplica& replica, const text::Tokenizer& tokenizer);

// Loads the model, with a progress bar on standard error, and starts its engine. Requests end at the model's and
// the tokenizer's end ids; ids without a token are never sampled. `tokenizer` must outlive the engine.
// Thread: any. Errors: check_tokenizer's, start_executor's and make_engine's; nothing is left running then.
[[nodiscard]] Result<std::unique_ptr<engine::Engine>> start_replica(PlannedReplica replica, const text::Tokenizer& tokenizer);

}  // namespace tandem::cli
