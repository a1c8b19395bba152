#include "executor/start_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/log.h"
#include "executor/cuda_geometry.h"
#include "model/checkpoint.h"
#include "ops/cuda/sampler_bytes.h"
#include "ops/host_memory.h"

namespace tandem::executor {
namespace {

constexpr int kMaxLogitRows = 64;  // rows of the logits buffer; a step with more does them in groups
constexpr int kCpuWarmUpTokens = ops::kPageTokens;

bool on_cuda(const ExecutorOptions& options) { return options.devices.kind == rank::DeviceKind::Cuda; }
int world_of(const ExecutorOptions& options) { return static_cast<int>(options.devices.ordinals.size()); }

// Most requests and step tokens: far beyond what a device holds, far below what an int can count.
constexpr int kMostSlots = 1 << 16;
constexpr int kMostStepTokens = 1 << 20;

Result<int> in_range(std::string_view flag, int value, int least, int most) {
  if (value < least)
    return fail(ErrorKind::Invalid, fmt::format("[start] {} = {}; {} or more works", flag, value, least), std::string(flag));
  if (value > most)
    return fail(ErrorKind::Invalid, fmt::format("[start] {} = {}; {} or less works", flag, value, most), std::string(flag));
  return value;
}

// Where Phase 1's gates ran: several ranks serve without a warning there, and nowhere else. CPU: the fabricated small
// geometries and the bundled model at 2 and 4 ranks; CUDA: those, 0.8B and 4B at 2 ranks.
bool gated(const ExecutorOptions& options, const model::Geometry& geometry) {
  const int world = world_of(options);
  if (world == 1) return true;
  constexpr int kSmallHidden = 512;  // of every fixture that is made small
  if (!on_cuda(options)) return geometry.hidden <= kSmallHidden && (world == 2 || world == 4);
  const auto shape = [](const model::Geometry& g) { return std::pair(g.hidden, g.layers.size()); };
  for (const char* const size : {"0.8B", "4B"}) {
    const auto published = model::published(size);
    if (published && shape(*published) == shape(geometry)) return world == 2;
  }
  return geometry.hidden <= kSmallHidden && world == 2;
}

std::int64_t reserve_of(const ExecutorOptions& options) {
  return options.reserve_bytes.value_or(on_cuda(options) ? std::int64_t{1} << 30 : std::int64_t{256} << 20);
}

// What each rank may use, as far as it is known before a device is opened.
Result<std::vector<std::int64_t>> device_bytes(const ExecutorOptions& options) {
  const auto world = static_cast<std::size_t>(world_of(options));
  std::vector<std::int64_t> bytes = options.memory_bytes;
  if (bytes.size() == 1) bytes.resize(world, bytes.front());
  if (!bytes.empty() && bytes.size() != world) {
    return fail(ErrorKind::Invalid,
                fmt::format("[start] --memory has {} sizes for {} ranks; give one, or one for each rank", bytes.size(), world), "--memory");
  }
  for (const std::int64_t size : bytes)
    if (size <= 0) return fail(ErrorKind::Invalid, fmt::format("[start] --memory = {}; 1 or more works", size), "--memory");
  if (!on_cuda(options)) {
    const auto share = static_cast<std::int64_t>(ops::host_memory_size().free_bytes / world);
    bytes.resize(world, share);
    for (std::int64_t& mine : bytes) mine = std::min(mine, share);
  }
  if (!options.taken_bytes.empty() && options.taken_bytes.size() != world) {
    return fail(ErrorKind::Invalid,
                fmt::format("[start] --debug-take-memory has {} sizes for {} ranks; give one for each", options.taken_bytes.size(), world),
                "--debug-take-memory");
  }
  return bytes;
}

}  // namespace

Result<model::Geometry> check_start(const ExecutorOptions& options) {
  const int world = world_of(options);
  TANDEM_TRY(rank::check_devices(options.devices));
  if (options.shares && on_cuda(options)) {
    return fail(ErrorKind::Unsupported,
                "[bench] --shares times operators where they are called, and a CUDA device runs them later; --device cpu "
                "works, and gates/device.sh trace draws a CUDA step",
                "--shares");
  }
  if (options.mixed.value_or(false) && world > 1) {
    return fail(ErrorKind::Unsupported,
                fmt::format("[tp] --mixed on with {} ranks; --mixed off works, or one rank", world),
                "--mixed");
  }
  if (options.record_decode && world > 1) {
    return fail(ErrorKind::Unsupported,
                fmt::format("[tp] --cuda-graphs on with {} ranks; --cuda-graphs auto (eager) or off works, or one rank", world), "--cuda-graphs");
  }
  if (options.linear_attention == model::LinearAttention::Sharded) {
    return fail(
        ErrorKind::Unsupported,
        fmt::format("[tp] --linear-attention sharded with {} {}; --linear-attention replicated works", world,
                    world == 1 ? "rank" : "ranks"),
        "--linear-attention");
  }

  TANDEM_ASSIGN(model::Geometry geometry, model::read_geometry(options.model));
  for (int rank = 0; rank < world; ++rank) {
    TANDEM_TRY(model::Partition::make(geometry, RankId{rank}, world, options.linear_attention));
  }
  if (on_cuda(options)) TANDEM_TRY(check_cuda_geometry(geometry));
  return geometry;
}

Result<StartPlan> plan_start(const ExecutorOptions& options) {
  const int world = world_of(options);
  const bool cuda = on_cuda(options);
  StartPlan plan;
  TANDEM_ASSIGN(plan.geometry, check_start(options));
  TANDEM_ASSIGN(const int slots, in_range("--max-requests", options.max_requests.value_or(cuda ? 64 : 8), 1, kMostSlots));
  TANDEM_ASSIGN(plan.max_step_tokens, in_range("--max-step-tokens", options.max_step_tokens.value_or(cuda ? 8192 : 512),
                                               ops::kPageTokens, kMostStepTokens));
  plan.mixed = options.mixed.value_or(world == 1);
  // A mixed step must have room for one chunk beside every other slot's decode row.
  const int least_mixed = plan.mixed ? slots + ops::kPageTokens - 1 : slots;
  TANDEM_ASSIGN(plan.max_mixed_tokens,
                in_range("--max-mixed-tokens", options.max_mixed_tokens.value_or(std::max(cuda ? 1024 : 512, least_mixed)), least_mixed,
                         kMostStepTokens));
  const int context = options.max_context.value_or(plan.geometry.max_context);
  if (context < 2) return fail(ErrorKind::Invalid, fmt::format("[start] --max-context = {}; 2 or more works", context), "--max-context");
  if (context > plan.geometry.max_context) {
    return fail(ErrorKind::Invalid,
                fmt::format("[start] --max-context = {}; the model was made for {}", context,
                            plan.geometry.max_context),
                "--max-context");
  }
  const int step_tokens = std::max(plan.max_step_tokens, plan.max_mixed_tokens);
  plan.limits = {.max_tokens = step_tokens,
                 .max_rows = std::min(2 * slots, step_tokens),  // padding included
                 .max_context = context,
                 .max_logit_rows = std::min(kMaxLogitRows, step_tokens),
                 .slots = slots,
                 .vocab = plan.geometry.vocab};
  TANDEM_ASSIGN(std::vector<std::int64_t> bytes, device_bytes(options));
  plan.request = {.geometry = plan.geometry,
                  .world = world,
                  .linear_attention = options.linear_attention,
                  .limits = plan.limits,
                  .context_is_wish = !options.max_context.has_value(),
                  .device_bytes = std::move(bytes),
                  .sampler_slot_bytes = cuda ? ops::cuda::sampler_slot_bytes(plan.geometry.vocab) : 0,
                  .communication_bytes = cuda ? comm::communicator_bytes(options.devices.all_reduce, world) : 0,
                  .reserve_bytes = reserve_of(options),
                  .kv_bytes = options.kv_bytes};
  TANDEM_ASSIGN(plan.capacity, memory::plan_capacity(plan.request));
  plan.limits.pages = plan.capacity.pages;
  return plan;
}

Result<std::unique_ptr<RankExecutor>> start_executor(const ExecutorOptions& options,
                                                     const StartProgressSink& progress) {
  TANDEM_ASSIGN(const StartPlan plan, plan_start(options));
  if (!gated(options, plan.geometry)) {
    log_warn("[tp] {} ranks on {}: not gated", world_of(options), rank::name(options.devices.kind));
  }
  log_info("[start] the plan:\n{}", memory::plan_text(plan.request, plan.capacity));

  auto settings = std::make_shared<rank::RankSettings>();
  TANDEM_ASSIGN(model::Checkpoint checkpoint, model::Checkpoint::open(options.model, plan.geometry));
  settings->checkpoint = std::make_shared<const model::Checkpoint>(std::move(checkpoint));
  settings->geometry = plan.geometry;
  settings->linear_attention = options.linear_attention;
  settings->rounding = options.rounding;
  settings->logprobs = options.logprobs;
  settings->tokens_with_text = options.tokens_with_text;
  settings->limits = plan.limits;
  settings->warm_up_tokens = on_cuda(options) ? plan.limits.max_tokens : kCpuWarmUpTokens;
  settings->reserve_bytes = reserve_of(options);
  settings->plan = plan.request;
  for (const memory::RankPlan& mine : plan.capacity.ranks) {
    settings->planned_bytes.push_back(mine.weight_bytes + mine.widening_bytes + mine.scratch_bytes +
                                      mine.sampler_bytes + mine.communication_bytes);
  }
  settings->memory_bytes = options.memory_bytes;
  settings->memory_bytes.resize(options.memory_bytes.empty() ? 0 : plan.request.device_bytes.size(),
                                options.memory_bytes.empty() ? 0 : options.memory_bytes.front());
  settings->taken_bytes = options.taken_bytes;
  settings->devices = options.devices;
  settings->nan_fill_freed = options.nan_fill_freed;
  settings->record_decode = options.record_decode;
  settings->warm_every_size = options.warm_every_size.value_or(on_cuda(options) && world_of(options) > 1);
  settings->hash_residual = options.hash_residual;
  settings->shares = options.shares;
  settings->on_step = options.on_step;

  Deadlines deadlines = options.deadlines;
  deadlines.step =
      options.step_deadline.value_or(on_cuda(options) ? std::chrono::seconds(30) : std::chrono::seconds(600));
  // The controller's deadlines come first: it knows what every rank is doing, a rank only who is missing.
  TANDEM_ASSIGN(settings->group, rank::make_group(options.devices, deadlines.init + deadlines.abort_grace,
                                                  deadlines.step + deadlines.abort_grace));

  RankExecutorOptions ranks;
  ranks.group = settings->group;
  ranks.make_model = [settings = std::shared_ptr<const rank::RankSettings>(settings)](
                         RankId rank, rank::Status& status) -> Result<std::unique_ptr<rank::RankModel>> {
    return std::make_unique<rank::ModelRank>(settings, rank, status);
  };
  ranks.wanted = {.slots = plan.limits.slots,
                  .pages = plan.limits.pages,
                  .max_context = plan.limits.max_context,
                  .max_step_tokens = plan.max_step_tokens,
                  .max_mixed_tokens = plan.max_mixed_tokens,
                  .vocab = plan.geometry.vocab};
  ranks.context_is_wish = plan.request.context_is_wish;
  ranks.mixed = plan.mixed;
  ranks.max_in_flight = options.max_in_flight;
  ranks.deadlines = deadlines;
  ranks.faults = options.faults;
  ranks.exit_process = options.exit_process;
  return RankExecutor::start(std::move(ranks), progress);
}

}  // namespace tandem::executor
