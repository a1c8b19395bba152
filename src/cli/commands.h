#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace tandem::cli {

// What the chosen subcommand does once all flags are read: the process's exit status.
// An error is printed as it is, and the status is 1.
using Action = std::function<Result<int>()>;

// Each adds one subcommand to `app` and sets `action` when it is the chosen one.
void add_serve(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_fabricate(CLI::App& app, Action& action);
void add_gate(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_soak(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);

}  // namespace tandem::cli
