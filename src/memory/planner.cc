#include "memory/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "memory/page_table.h"
#include "memory/pool_layout.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace tandem::memory {
namespace {

bool is_vector(const model::TensorSpec& tensor) { return tensor.cols() == 1 || tensor.role == model::Role::Conv; }

// A sampler keeps every slot's settings and past for the penalties, and three steps' choices.
std::int64_t sampler_bytes(const PlanRequest& request) {
  const ops::StepLimits& limits = request.limits;
  const std::int64_t slot = request.sampler_slot_bytes > 0 ? request.sampler_slot_bytes : std::int64_t{limits.max_context} * 4;
  return (std::int64_t{limits.slots} + 1) * slot + 3 * std::int64_t{limits.max_tokens} * static_cast<std::int64_t>(sizeof(ops::TokenChoice));
}

RankPlan fixed_part(const PlanRequest& request, const model::Partition& partition) {
  const model::Geometry& geometry = request.geometry;
  RankPlan plan{.rank = partition.rank().value};
  for (const model::TensorSpec& tensor : model::text_tensors(geometry)) {
    if (!model::is_loaded(tensor, partition)) continue;
    const std::int64_t elements = partition.share(tensor).elements();
    const std::int64_t bytes = elements * (tensor.float32 ? 4 : 2);
    const model::WeightGroup group = model::group(tensor.role);
    auto line = std::find_if(plan.weights.begin(), plan.weights.end(),
                             [&](const GroupBytes& entry) { return entry.group == group; });
    if (line == plan.weights.end()) line = plan.weights.insert(plan.weights.end(), GroupBytes{.group = group});
    line->bytes += bytes;
    plan.weight_bytes += bytes;
    if (is_vector(tensor)) plan.widening_bytes += elements * 4 - bytes;
  }
  std::sort(plan.weights.begin(), plan.weights.end(),
            [](const GroupBytes& a, const GroupBytes& b) { return a.group < b.group; });
  plan.scratch_bytes = static_cast<std::int64_t>(model::Scratch::bytes(geometry, partition, request.limits));
  plan.sampler_bytes = sampler_bytes(request);
  plan.communication_bytes = request.communication_bytes;
  plan.reserve_bytes = request.reserve_bytes;
  plan.slot_bytes = StateLayout(geometry, partition).slot_bytes();
  plan.page_bytes = KvLayout(geometry, partition).page_bytes();
  plan.slots = std::int64_t{request.limits.slots} + 1;
  return plan;
}

std::int64_t device_bytes(const PlanRequest& request, int rank) {
  if (request.device_bytes.empty()) return 0;
  return request.device_bytes.size() == 1 ? request.device_bytes.front()
                                          : request.device_bytes[static_cast<std::size_t>(rank)];
}

// Enough for every slot to reach max_context at once: more is never used.
std::int64_t most_pages(const PlanRequest& request) {
  return std::min<std::int64_t>(std::int64_t{request.limits.slots} * pages_for(request.limits.max_context),
                                std::numeric_limits<std::int32_t>::max() - 1);
}

std::int64_t pages_in(const PlanRequest& request, const RankPlan& rank) {
  std::int64_t pages = most_pages(request);
  if (rank.page_bytes == 0) return pages;
  if (rank.device_bytes > 0) pages = std::min(pages, (rank.device_bytes - rank.fixed_bytes()) / rank.page_bytes);
  if (request.kv_bytes) pages = std::min(pages, *request.kv_bytes / rank.page_bytes - 1);
  return pages;
}

std::int64_t pages_needed(const PlanRequest& request) {
  const std::int64_t one_each = request.limits.slots;
  return request.context_is_wish ? one_each : std::max(one_each, pages_for(request.limits.max_context));
}

// The sums of all ranks, and the minimum of their pages, which may be too few or negative.
struct Sums {
  std::vector<RankPlan> ranks;
  std::int64_t pages = 0;
};

Result<Sums> add_up(const PlanRequest& request) {
  Sums sums{.pages = most_pages(request)};
  for (int rank = 0; rank < request.world; ++rank) {
    TANDEM_ASSIGN(const model::Partition partition, model::Partition::make(request.geometry, RankId{rank}, request.world,
                                                                           request.linear_attention));
    RankPlan plan = fixed_part(request, partition);
    plan.device_bytes = device_bytes(request, rank);
    plan.pages = pages_in(request, plan);
    sums.pages = std::min(sums.pages, plan.pages);
    sums.ranks.push_back(std::move(plan));
  }
  return sums;
}

std::int64_t longest_request(const PlanRequest& request, std::int64_t pages) {
  return std::min<std::int64_t>(pages * ops::kPageTokens, request.limits.max_context);
}

// The largest number of requests, or the longest context, with which the plan would work on every rank.
std::string what_would_fit(const PlanRequest& request) {
  PlanRequest other = request;
  int none = 0, all = request.limits.slots;  // `none` fits by definition, `all` does not
  while (all - none > 1) {
    other.limits.slots = none + (all - none) / 2;
    const auto sums = add_up(other);
    (sums && sums->pages >= pages_needed(other) ? none : all) = other.limits.slots;
  }
  if (none > 0) return fmt::format("it fits with --max-requests {}", none);

  other.limits.slots = 1;
  const auto sums = add_up(other);
  if (!sums) return sums.error().message;
  if (sums->pages > 0) {
    return fmt::format("it fits with --max-requests 1 and --max-context {}", longest_request(other, sums->pages));
  }
  std::int64_t least = 0;
  for (const RankPlan& rank : sums->ranks) least = std::max(least, rank.fixed_bytes() + rank.page_bytes);
  return fmt::format("one request with one page needs {} bytes on a rank", least);
}

}  // namespace

Room room_in(std::int64_t left_bytes, const Room& wanted, std::int64_t least_pages, std::int64_t slot_bytes, std::int64_t page_bytes) {
  // Pages that lie beside so many slots; -1: not even the scratch page.
  const auto beside = [&](int slots) -> std::int64_t {
    const std::int64_t rest = left_bytes - (std::int64_t{slots} + 1) * slot_bytes - page_bytes;
    if (rest < 0) return -1;
    return page_bytes == 0 ? wanted.pages : std::min<std::int64_t>(wanted.pages, rest / page_bytes);
  };
  const auto serves = [&](int slots) { return beside(slots) >= std::max<std::int64_t>(least_pages, slots); };
  if (serves(wanted.slots)) return {wanted.slots, static_cast<int>(beside(wanted.slots))};
  int fits = 0, too_many = wanted.slots;  // more slots leave fewer pages and need more
  while (too_many - fits > 1) {
    const int middle = fits + (too_many - fits) / 2;
    (serves(middle) ? fits : too_many) = middle;
  }
  return {fits, static_cast<int>(std::max<std::int64_t>(beside(fits), 0))};
}

Result<CapacityPlan> plan_capacity(const PlanRequest& request) {
  if (request.limits.slots < 1 || request.limits.max_context < 1 || request.limits.max_tokens < 1) {
    return fail(ErrorKind::Invalid,
                fmt::format("[memory] {} requests of {} tokens in steps of {}; each must be at least 1", request.limits.slots,
                            request.limits.max_context, request.limits.max_tokens));
  }
  if (request.device_bytes.size() > 1 && request.device_bytes.size() != static_cast<std::size_t>(request.world)) {
    return fail(ErrorKind::Invalid, fmt::format("[memory] {} device sizes for {} ranks; give one, or one per rank",
                                                request.device_bytes.size(), request.world));
  }
  TANDEM_ASSIGN(Sums sums, add_up(request));
  if (sums.pages < pages_needed(request)) {
    const auto tightest = std::min_element(sums.ranks.begin(), sums.ranks.end(),
                                           [](const RankPlan& a, const RankPlan& b) { return a.pages < b.pages; });
    const std::string limit = request.kv_bytes ? fmt::format("--kv-memory {} bytes", *request.kv_bytes)
                                               : fmt::format("{} bytes of the device", tightest->device_bytes);
    return fail(ErrorKind::Capacity,
                fmt::format("[memory] rank {}: {} requests of up to {} tokens need {} KV pages of {} bytes beside {} bytes "
                            "for weights, scratch, communicator, state and reserve; {} hold {} pages; {}",
                            tightest->rank, request.limits.slots, request.limits.max_context, pages_needed(request),
                            tightest->page_bytes, tightest->fixed_bytes(), limit,
                            std::max<std::int64_t>(tightest->pages, 0), what_would_fit(request)));
  }
  return CapacityPlan{.ranks = std::move(sums.ranks),
                      .slots = request.limits.slots,
                      .pages = static_cast<int>(sums.pages),
                      .longest_request = longest_request(request, sums.pages)};
}

Result<void> check_fits(PlanRequest request, int rank, std::int64_t free_bytes) {
  const auto mine = static_cast<std::size_t>(rank);
  const std::int64_t limit = device_bytes(request, rank);
  request.device_bytes.assign(static_cast<std::size_t>(request.world), 0);
  request.device_bytes[mine] = limit > 0 ? std::min(limit, free_bytes) : std::max<std::int64_t>(free_bytes, 1);
  TANDEM_TRY(plan_capacity(request));
  return {};
}

Result<std::string> inspect_report(const PlanRequest& request, ReportFormat format) {
  TANDEM_ASSIGN(const CapacityPlan plan, plan_capacity(request));
  return format == ReportFormat::Json ? plan_json(request, plan) : plan_text(request, plan);
}

}  // namespace tandem::memory
