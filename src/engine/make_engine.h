#pragma once

#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "executor/executor.h"
#include "text/tokenizer.h"

namespace tandem::engine {

// An engine over an executor whose ranks have allocated (R5.1), with its scheduler and text worker threads
// running. `end_ids` are the model's: sampling one ends a request unless it says ignore_eos.
//
// Owns the executor; every one of its methods but capacity() is called on the scheduler's thread only.
// `tokenizer` must outlive the engine. The destructor is stop(), its error logged.
// Errors: Invalid, with the option, its value and what works.
[[nodiscard]] Result<std::unique_ptr<Engine>> make_engine(EngineOptions options,
                                                          std::unique_ptr<executor::Executor> executor,
                                                          const text::Tokenizer& tokenizer,
                                                          std::span<const TokenId> end_ids);

}  // namespace tandem::engine
