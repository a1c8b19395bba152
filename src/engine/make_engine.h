#pragma once

#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "executor/executor.h"
#include "scheduler/planner.h"
#include "text/tokenizer.h"

namespace tandem::engine {

// The sizes that an engine with these options keeps to on ranks of this capacity. It needs no ranks: called
// with the planned capacity before anything is loaded, it refuses then what make_engine would refuse later.
// Errors: Invalid, with the option, its value and what works.
[[nodiscard]] Result<scheduler::Limits> check_options(const EngineOptions& options,
                                                      const rank::Capacity& capacity);

// An engine over an executor whose ranks have allocated (R5.1), with its scheduler and text worker threads
// running. `end_ids` are the model's: sampling one ends a request unless it says ignore_eos.
//
// Owns the executor; every one of its methods but capacity() is called on the scheduler's thread only.
// `tokenizer` must outlive the engine. The destructor is stop(), its error logged.
// Errors: check_options(), and Invalid for more steps in flight than the executor takes and for end ids
// outside the vocabulary.
[[nodiscard]] Result<std::unique_ptr<Engine>> make_engine(EngineOptions options,
                                                          std::unique_ptr<executor::Executor> executor,
                                                          const text::Tokenizer& tokenizer,
                                                          std::span<const TokenId> end_ids);

}  // namespace tandem::engine
