#include <cstdio>

#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/geometry_argument.h"
#include "comm/all_reduce.h"
#include "memory/planner.h"
#include "ops/cuda/sampler_bytes.h"

namespace tandem::cli {
namespace {

constexpr char kExamples[] =
    "Prints what a model needs on each rank: weights by group, one state slot, one page, and what fits.\n"
    "Needs no GPU, no weights and no memory: a published size or a folder with config.json.\n\n"
    "  tandem inspect 4B\n"
    "  tandem inspect 27B --tp 4 --memory 80G --linear-attention sharded\n"
    "  tandem inspect ~/models/Qwen3.5-4B --json";

struct InspectFlags {
  std::string model;
  int tp = 1;
  std::string memory, reserve = "1G", kv_memory, linear_attention = "replicated", device = "cuda", all_reduce = "auto";
  int max_requests = 64, max_step_tokens = 8192;
  std::optional<int> max_context;
  bool json = false;
};

Result<int> inspect(const InspectFlags& flags) {
  memory::PlanRequest request;
  TANDEM_ASSIGN(request.geometry, geometry_argument(flags.model));
  if (flags.tp < 1 || flags.max_requests < 1 || flags.max_step_tokens < 1 || flags.max_context.value_or(1) < 1)
    return fail(ErrorKind::Invalid, "[inspect] --tp, --max-requests, --max-step-tokens and --max-context are at least 1");
  request.world = flags.tp;
  request.linear_attention = flags.linear_attention == "sharded" ? model::LinearAttention::Sharded : model::LinearAttention::Replicated;
  request.limits.max_tokens = flags.max_step_tokens;
  request.limits.max_rows = flags.max_requests;
  request.limits.max_logit_rows = flags.max_requests;
  request.limits.slots = flags.max_requests;
  request.limits.vocab = request.geometry.vocab;
  request.limits.max_context = flags.max_context.value_or(request.geometry.max_context);
  request.context_is_wish = !flags.max_context;
  if (!flags.memory.empty()) {
    TANDEM_ASSIGN(const std::int64_t bytes, parse_bytes(flags.memory, "memory"));
    request.device_bytes = {bytes};
  }
  if (flags.device == "cuda") {
    request.sampler_slot_bytes = ops::cuda::sampler_slot_bytes(request.geometry.vocab);
    request.communication_bytes = comm::communicator_bytes(comm::all_reduce_named(flags.all_reduce).value_or(comm::AllReduce::Auto), flags.tp);
  }
  TANDEM_ASSIGN(request.reserve_bytes, parse_bytes(flags.reserve, "reserve-memory"));
  if (!flags.kv_memory.empty()) {
    TANDEM_ASSIGN(request.kv_bytes, parse_bytes(flags.kv_memory, "kv-memory"));
  }
  TANDEM_ASSIGN(const std::string report,
                memory::inspect_report(request, flags.json ? memory::ReportFormat::Json : memory::ReportFormat::Text));
  std::fputs(report.c_str(), stdout);
  if (!flags.json && flags.tp > 1 && request.linear_attention == model::LinearAttention::Sharded)
    std::puts("not served yet: several ranks run with replicated linear attention");
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* const command = app.add_subcommand("inspect", kExamples);
  command->add_option("model", flags->model, "0.8B, 2B, 4B, 9B, 27B or a folder with config.json; none: the bundled model");
  command->add_option("--tp", flags->tp, "Ranks")->capture_default_str();
  command->add_option("--device", flags->device, "Whose memory: CUDA ranks count ids in a table each slot, and several keep buffers to speak to each other")
      ->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  command->add_option("--all-reduce", flags->all_reduce, "Between CUDA ranks: auto, nccl or oneshot")
      ->check(CLI::IsMember({"auto", "nccl", "oneshot"}))->capture_default_str();
  command->add_option("--linear-attention", flags->linear_attention, "replicated or sharded")
      ->check(CLI::IsMember({"replicated", "sharded"}))->capture_default_str();
  command->add_option("--memory", flags->memory, "Memory of each device, as in 80G (default: no limit)");
  command->add_option("--reserve-memory", flags->reserve, "Memory left alone on each device")->capture_default_str();
  command->add_option("--kv-memory", flags->kv_memory, "Most memory for KV pages on each rank");
  command->add_option("--max-requests", flags->max_requests, "State slots")->capture_default_str();
  command->add_option("--max-context", flags->max_context, "Tokens of one request (default: the model's, as memory allows)");
  command->add_option("--max-step-tokens", flags->max_step_tokens, "Tokens of the largest step")->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &action] { action = [flags] { return inspect(*flags); }; });
}

}  // namespace tandem::cli
