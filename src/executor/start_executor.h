#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "executor/deadlines.h"
#include "executor/executor.h"
#include "executor/rank_executor.h"
#include "memory/planner.h"
#include "model/geometry.h"
#include "model/partition.h"
#include "model/weights.h"
#include "ops/head.h"
#include "ops/step_shares.h"
#include "rank/device.h"
#include "rank/model_rank.h"

namespace tandem::executor {

// All that a replica's ranks are started with, and the defaults. An absent value takes the device's
// default: the numbers in the comments are CPU | CUDA.
struct ExecutorOptions {
  std::filesystem::path model;  // folder with config.json and the weights
  rank::DeviceChoice devices;   // one ordinal per rank: its size is the degree
  model::LinearAttention linear_attention = model::LinearAttention::Replicated;
  std::optional<int> max_requests;       // 8 | 64
  std::optional<int> max_context;        // the model's, as far as memory goes; given: as given, or no start
  std::optional<int> max_step_tokens;    // 512 | 8192
  std::optional<int> max_mixed_tokens;   // 512 | 1024
  std::optional<bool> mixed;             // on for one rank; more than one: off, and on is refused
  std::optional<std::int64_t> kv_bytes;  // --kv-memory: at most this much for KV pages on each rank
  std::vector<std::int64_t>
      memory_bytes;  // debug: what each rank may use of its device; one, or one per rank
  std::vector<std::int64_t> taken_bytes;  // debug: gone on each rank when it measures, which the plan knew nothing of
  std::optional<std::int64_t> reserve_bytes;  // left alone on each device: 256 MiB | 1 GiB
  int tokens_with_text = 0;  // ids from here on have no token and are never sampled; 0: all have
  ops::LogprobsMode logprobs = ops::LogprobsMode::Raw;
  model::VectorRounding rounding = model::VectorRounding::Bf16;
  int max_in_flight = 1;
  bool record_decode = false;  // recorded decode steps (CUDA graphs); refused with more than one rank (R6.3)
  std::optional<bool> warm_every_size;  // warm-up meets every kernel: off | with more than one rank
  std::optional<Nanoseconds> step_deadline;  // 600 s | 30 s; the others stand in `deadlines`
  Deadlines deadlines;

  std::shared_ptr<ops::ShareMeter> shares;  // gets the times of rank 0's steps; refused on CUDA

  // Debug and tests.
  bool nan_fill_freed = false;
  bool hash_residual = false;
  std::function<void(const rank::StepTrace&)> on_step;
  std::shared_ptr<rank::Faults> faults;
  std::function<void(int status)> exit_process;
};

// What start-up decided before it opened any weight.
struct StartPlan {
  model::Geometry geometry;
  ops::StepLimits limits;
  std::int32_t max_step_tokens = 0;
  std::int32_t max_mixed_tokens = 0;
  bool mixed = true;
  memory::PlanRequest request;
  memory::CapacityPlan capacity;
};

// The refusals that need no capacity (R6): devices, degree, features, geometry. Reads config.json alone.
// Errors: each with the option, its value and what works.
[[nodiscard]] Result<model::Geometry> check_start(const ExecutorOptions& options);

// check_start, the other start-up refusals and the capacity plan: reads config.json, and nothing of the weights.
// Errors: each with the option, its value and what works.
[[nodiscard]] Result<StartPlan> plan_start(const ExecutorOptions& options);

// plan_start, then the ranks: devices, weights, warm-up, pools. Prints the plan and each rank's device and
// capacity to the log. Thread: any; `progress` (may be empty) is called on it.
// Errors: plan_start's, the checkpoint's, a rank's. Nothing is left running after an error.
[[nodiscard]] Result<std::unique_ptr<RankExecutor>> start_executor(const ExecutorOptions& options,
                                                                   const StartProgressSink& progress = {});

}  // namespace tandem::executor
