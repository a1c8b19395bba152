#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/options.h"
#include "executor/start_executor.h"

namespace tandem::cli {

// The flags of everything that runs a model: serve, chat, bench, soak, gate. One spelling everywhere.
struct ReplicaFlags {
  std::string model;
  std::string device = "auto";
  std::optional<int> tp;
  std::vector<int> devices;
  std::string linear_attention = "replicated";
  std::string all_reduce = "auto";
  std::optional<int> max_requests, max_context, max_step_tokens, max_mixed_tokens;
  std::string mixed = "auto";
  std::string kv_memory, memory, reserve_memory, take_memory;
  std::string cuda_graphs = "auto";
  bool prefix_cache = false;
  std::string ops = "fast";
  std::string logprobs_mode = "raw";
  int cpu_threads = 0;
  std::string cpu_isa;
  std::optional<double> init_deadline, load_deadline, step_deadline, drop_deadline, join_deadline, abort_grace, exit_deadline, idle_ping;
  bool nan_fill = false;
  std::vector<std::string> faults;
  std::optional<int> default_max_tokens;
  std::size_t max_waiting = 8192;
  std::string log_level = "info";

  // All of them.
  void add(CLI::App& app);
  // Only those that say where and how the model's arithmetic runs; the others keep their defaults.
  void add_ranks(CLI::App& app);
};

struct Replica {
  executor::ExecutorOptions executor;
  engine::EngineOptions engine;
};

// The flags as options, everything that can be refused without the model refused (R6.1, R6.3).
// Errors: Invalid or Unsupported, with the flag, its value and what works.
[[nodiscard]] Result<Replica> to_options(const ReplicaFlags& flags);

}  // namespace tandem::cli
