#include "cli/replica_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cpu_features.h"
#include "base/log.h"
#include "cli/byte_size.h"
#include "cli/model_folder.h"
#include "cli/ranges.h"
#include "executor/fault_flag.h"

namespace tandem::cli {
namespace {

constexpr int kCudaDefaultMaxTokens = 32768;
constexpr int kCpuDefaultMaxTokens = 1024;
constexpr int kMostCpuThreads = 1024;

Result<void> apply_isa(const std::string& wanted) {
  if (wanted.empty()) return {};
  for (const CpuIsa isa : {CpuIsa::Scalar, CpuIsa::Avx2, CpuIsa::Avx512, CpuIsa::Avx512Bf16, CpuIsa::Amx}) {
    if (name(isa) != wanted) continue;
    if (cap_cpu_isa(isa)) return {};
    return fail(ErrorKind::Unsupported, fmt::format("[cpu-isa] this machine has no {}; its best is {}", wanted, name(detected_cpu_isa())));
  }
  return fail(ErrorKind::Invalid, fmt::format("[cpu-isa] '{}' is none of scalar, avx2, avx512, avx512bf16, amx", wanted));
}

Result<LogLevel> parse_log_level(const std::string& level) {
  if (level == "debug") return LogLevel::Debug;
  if (level == "info") return LogLevel::Info;
  if (level == "warn") return LogLevel::Warn;
  if (level == "error") return LogLevel::Error;
  return fail(ErrorKind::Invalid, fmt::format("[log-level] '{}' is none of debug, info, warn, error", level));
}

Result<rank::DeviceChoice> choose_devices(const ReplicaFlags& flags) {
  rank::DeviceChoice choice;
  choice.cpu_threads = flags.cpu_threads;
  if (flags.cpu_threads < 0 || flags.cpu_threads > kMostCpuThreads)
    return fail(ErrorKind::Invalid, fmt::format("[cpu-threads] {} threads; 1 to {}, or 0 for cores / ranks", flags.cpu_threads, kMostCpuThreads));
  choice.ops = flags.ops == "reference" ? rank::OpsKind::Reference : rank::OpsKind::Fast;
  if (flags.device == "cuda" || (flags.device == "auto" && choice.ops == rank::OpsKind::Fast && rank::cuda_devices()))
    choice.kind = rank::DeviceKind::Cuda;
  if (choice.kind == rank::DeviceKind::Cuda && choice.ops == rank::OpsKind::Reference)
    return fail(ErrorKind::Unsupported, "[ops] reference runs on the CPU only; use --device cpu");
  const int degree = flags.tp.value_or(flags.devices.empty() ? 1 : static_cast<int>(flags.devices.size()));
  if (degree < 1 || degree > rank::kMaxOrdinals)
    return fail(ErrorKind::Invalid, fmt::format("[tp] {} ranks; 1 to {} work, each on a device of its own", degree, rank::kMaxOrdinals));
  if (!flags.devices.empty() && static_cast<int>(flags.devices.size()) != degree)
    return fail(ErrorKind::Invalid, fmt::format("[devices] {} ordinals ({}) for --tp {}; give one for each rank", flags.devices.size(),
                                                fmt::join(flags.devices, ","), degree));
  choice.all_reduce = comm::all_reduce_named(flags.all_reduce).value_or(comm::AllReduce::Auto);
  choice.ordinals = flags.devices;
  for (int i = 0; choice.ordinals.empty() || static_cast<int>(choice.ordinals.size()) < degree; ++i) choice.ordinals.push_back(i);
  return choice;
}

// R6.3: what does not exist, or not yet together with more than one rank.
Result<void> check_features(const ReplicaFlags& flags, const rank::DeviceChoice& devices) {
  if (flags.prefix_cache)
    return fail(ErrorKind::Unsupported,
                "[prefix-cache] on is not available: KV pages and recurrent snapshots cannot yet be restored together; leave it off");
  const bool several = devices.ordinals.size() > 1;
  if (flags.cuda_graphs == "on" && several)
    return fail(ErrorKind::Unsupported, fmt::format("[cuda-graphs] on is not available with --tp {}; use auto (eager) or off, or --tp 1",
                                                    devices.ordinals.size()));
  if (flags.cuda_graphs == "on" && devices.kind != rank::DeviceKind::Cuda)
    return fail(ErrorKind::Unsupported, "[cuda-graphs] on needs --device cuda; use auto or off");
  return {};
}

// Of the options from number `first` on.
void refuse_empty_values(CLI::App& app, std::size_t first) {
  const std::vector<CLI::Option*> options = app.get_options();
  for (std::size_t i = first; i < options.size(); ++i)
    if (options[i]->get_expected_min() > 0) options[i]->check(not_empty());
}

// "80G" or "80G,40G"; none of an empty text.
Result<std::vector<std::int64_t>> parse_sizes(const std::string& text, std::string_view flag) {
  std::vector<std::int64_t> sizes;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    TANDEM_ASSIGN(const std::int64_t bytes, parse_bytes(text.substr(at, end - at), flag));
    sizes.push_back(bytes);
    at = end + 1;
  }
  return sizes;
}

void set(Nanoseconds& deadline, const std::optional<double>& seconds) {
  if (seconds) deadline = std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(*seconds));
}

}  // namespace

void ReplicaFlags::add_ranks(CLI::App& app) {
  app.add_option("--device", device, "Where to run: cpu, cuda or auto (cuda if there is one)")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))->capture_default_str()->envname("TANDEM_DEVICE");
  app.add_option("--tp", tp, "Ranks, each with its share of the model (default 1)")->envname("TANDEM_TP");
  app.add_option("--devices", devices, "Logical device of each rank, 0 to 15, as in 0,1 (default 0,1,...)")->delimiter(',');
  app.add_option("--linear-attention", linear_attention, "Layout under --tp: replicated (sharded is not available yet)")
      ->check(CLI::IsMember({"replicated", "sharded"}))->capture_default_str();
  app.add_option("--all-reduce", all_reduce, "Between CUDA ranks: auto (by size), nccl, or oneshot (peer writes)")
      ->check(CLI::IsMember({"auto", "nccl", "oneshot"}))->capture_default_str();
  app.add_option("--ops", ops, "Operators: fast, or reference (plain, slow, the oracle)")
      ->check(CLI::IsMember({"fast", "reference"}))->capture_default_str();
  app.add_option("--cpu-threads", cpu_threads, "Threads of each CPU rank (default cores / ranks)");
  app.add_option("--cpu-isa", cpu_isa, "Use at most: scalar, avx2, avx512, avx512bf16 or amx");
  refuse_empty_values(app, 0);
}

void ReplicaFlags::add(CLI::App& app) {
  app.add_option("model", model, "Folder with config.json, tokenizer.json and safetensors; none: the bundled model");
  add_ranks(app);
  const std::size_t ranks = app.get_options().size();
  app.add_option("--max-requests", max_requests, "Requests that hold state at once (default 8 on CPU, 64 on CUDA)");
  app.add_option("--max-context", max_context, "Tokens of one request, prompt and completion (default: the model's, as memory allows)");
  app.add_option("--default-max-tokens", default_max_tokens, "Completion tokens of a request that names none (default 1024 on CPU, 32768 on CUDA)");
  app.add_option("--max-step-tokens", max_step_tokens, "Most tokens of a step (default 512 on CPU, 8192 on CUDA)");
  app.add_option("--max-mixed-tokens", max_mixed_tokens, "Most tokens of a step with decode rows, unless many prompts queue (default 512 on CPU, 1024 on CUDA)");
  app.add_option("--mixed", mixed, "Prompt chunks and decode rows in one step: on (one rank only), off or auto")
      ->check(CLI::IsMember({"on", "off", "auto"}))->capture_default_str();
  app.add_option("--kv-memory", kv_memory, "Most memory for KV pages on each rank, as in 8G (default: what is left)");
  app.add_option("--reserve-memory", reserve_memory, "Memory left alone on each device (default 256M on CPU, 1G on CUDA)");
  app.add_option("--memory", memory, "Pretend that each device has only this much, or each rank's, as in 80G,40G");
  app.add_option("--cuda-graphs", cuda_graphs, "Recorded decode steps: auto, on (one CUDA rank only) or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))->capture_default_str();
  app.add_flag("--prefix-cache", prefix_cache, "Reuse the state of shared prompt beginnings (not available yet)");
  app.add_option("--logprobs-mode", logprobs_mode, "Logprobs of the raw logits, or processed by penalties and temperature")
      ->check(CLI::IsMember({"raw", "processed"}))->capture_default_str();
  app.add_option("--max-waiting", max_waiting, "Requests that may wait; more are answered 503")->capture_default_str();
  app.add_option("--log-level", log_level, "debug, info, warn or error")->capture_default_str();
  const auto seconds = [&app](const char* flag, std::optional<double>& value, const char* text) {
    app.add_option(flag, value, text)->check(deadline_seconds())->group("Deadlines (seconds)");
  };
  seconds("--init-deadline", init_deadline, "Opening devices and communicators (default 120)");
  seconds("--load-deadline", load_deadline, "Loading without a byte of progress (default 30)");
  seconds("--step-deadline", step_deadline, "One step (default 600 on CPU, 30 on CUDA)");
  seconds("--drop-deadline", drop_deadline, "Dropping requests, and the answer of an idle rank (default 10)");
  seconds("--idle-ping", idle_ping, "How often idle ranks are asked whether they live (default 1)");
  seconds("--join-deadline", join_deadline, "Orderly end of the ranks (default 10)");
  seconds("--abort-grace", abort_grace, "From a failure to the ranks' end (default 2)");
  seconds("--exit-deadline", exit_deadline, "From a failure to the process's end (default 10)");
  app.add_flag("--debug-nan-fill", nan_fill, "Fill memory that no request holds with NaN")->group("Debugging");
  app.add_option("--debug-take-memory", take_memory, "Take this much away from each rank after it has loaded, as in 0,2G")->group("Debugging");
  app.add_option("--fault", faults, "Fail on purpose, as in kind=hang,rank=1,step=30 (see executor/fault_flag.h)")->group("Debugging");
  refuse_empty_values(app, ranks);
}

Result<Replica> to_options(const ReplicaFlags& flags) {
  TANDEM_ASSIGN(const LogLevel level, parse_log_level(flags.log_level));
  set_log_level(level);
  TANDEM_TRY(apply_isa(flags.cpu_isa));
  Replica replica;
  executor::ExecutorOptions& e = replica.executor;
  TANDEM_ASSIGN(e.devices, choose_devices(flags));
  TANDEM_TRY(check_features(flags, e.devices));
  TANDEM_ASSIGN(e.model, find_model(flags.model));
  e.linear_attention = flags.linear_attention == "sharded" ? model::LinearAttention::Sharded : model::LinearAttention::Replicated;
  e.max_requests = flags.max_requests;
  e.max_context = flags.max_context;
  e.max_step_tokens = flags.max_step_tokens;
  e.max_mixed_tokens = flags.max_mixed_tokens;
  if (flags.mixed != "auto") e.mixed = flags.mixed == "on";
  if (!flags.kv_memory.empty()) {
    TANDEM_ASSIGN(e.kv_bytes, parse_bytes(flags.kv_memory, "kv-memory"));
  }
  if (!flags.reserve_memory.empty()) {
    TANDEM_ASSIGN(e.reserve_bytes, parse_bytes(flags.reserve_memory, "reserve-memory"));
  }
  TANDEM_ASSIGN(e.memory_bytes, parse_sizes(flags.memory, "memory"));
  TANDEM_ASSIGN(e.taken_bytes, parse_sizes(flags.take_memory, "debug-take-memory"));
  e.logprobs = flags.logprobs_mode == "processed" ? ops::LogprobsMode::Processed : ops::LogprobsMode::Raw;
  set(e.deadlines.init, flags.init_deadline);
  set(e.deadlines.load_progress, flags.load_deadline);
  set(e.deadlines.drop, flags.drop_deadline);
  set(e.deadlines.join, flags.join_deadline);
  set(e.deadlines.abort_grace, flags.abort_grace);
  set(e.deadlines.process_exit, flags.exit_deadline);
  if (flags.step_deadline) {
    e.step_deadline = Nanoseconds{};
    set(*e.step_deadline, flags.step_deadline);
  }
  e.nan_fill_freed = flags.nan_fill;
  // The host prepares the next step while the device runs this one.
  e.max_in_flight = e.devices.kind == rank::DeviceKind::Cuda ? 2 : 1;
  e.record_decode = flags.cuda_graphs != "off" && e.devices.kind == rank::DeviceKind::Cuda && e.devices.ordinals.size() == 1;
  if (flags.cuda_graphs == "auto" && e.devices.kind == rank::DeviceKind::Cuda && e.devices.ordinals.size() > 1)
    log_info("[cuda-graphs] auto: steps run eager with {} ranks", e.devices.ordinals.size());
  TANDEM_ASSIGN(e.faults, executor::arm_faults(flags.faults, static_cast<int>(e.devices.ordinals.size())));

  const bool cuda = e.devices.kind == rank::DeviceKind::Cuda;
  replica.engine.default_max_tokens = flags.default_max_tokens.value_or(cuda ? kCudaDefaultMaxTokens : kCpuDefaultMaxTokens);
  replica.engine.max_waiting = flags.max_waiting;
  if (flags.idle_ping) replica.engine.idle_ping = std::chrono::milliseconds(static_cast<std::int64_t>(*flags.idle_ping * 1000));
  return replica;
}

}  // namespace tandem::cli
