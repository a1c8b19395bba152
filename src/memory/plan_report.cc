// The plan as people and programs read it.

#include <fmt/format.h>

#include "base/json_writer.h"
#include "memory/planner.h"

namespace tandem::memory {
namespace {

// 8411510272 -> "8,411,510,272"
std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number < 0 ? -number : number);
  std::string text = number < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

bool same_sum(const RankPlan& a, const RankPlan& b) {
  return a.fixed_bytes() == b.fixed_bytes() && a.pages == b.pages && a.weight_bytes == b.weight_bytes &&
         a.device_bytes == b.device_bytes;
}

std::string line(std::string_view what, std::int64_t bytes, std::string_view note = {}) {
  std::string text = fmt::format("  {:<34}{:>19}", what, grouped(bytes));
  if (!note.empty()) text += fmt::format("  {}", note);
  return text + "\n";
}

std::string rank_text(const RankPlan& rank, const CapacityPlan& plan) {
  std::string text;
  for (const GroupBytes& entry : rank.weights) text += line(fmt::format("weights: {}", name(entry.group)), entry.bytes);
  text += line("weights in all", rank.weight_bytes);
  text += line("vectors kept in float32, extra", rank.widening_bytes);
  text += line("scratch of one step", rank.scratch_bytes);
  text += line("sampler", rank.sampler_bytes);
  if (rank.communication_bytes > 0) text += line("communicator", rank.communication_bytes);
  text += line("reserve", rank.reserve_bytes);
  text += line("state slots", rank.slots * rank.slot_bytes,
               fmt::format("{} requests + 1 for padding, {} each", rank.slots - 1, grouped(rank.slot_bytes)));
  text += line("KV pages", (std::int64_t{plan.pages} + 1) * rank.page_bytes,
               fmt::format("{} of 64 tokens + 1 for padding, {} each", plan.pages, grouped(rank.page_bytes)));
  const std::int64_t used = rank.fixed_bytes() + std::int64_t{plan.pages} * rank.page_bytes;
  text += line("sum", used);
  if (rank.device_bytes > 0) {
    text += line("device", rank.device_bytes, fmt::format("{} left over", grouped(rank.device_bytes - used)));
  }
  return text;
}

}  // namespace

std::string plan_text(const PlanRequest& request, const CapacityPlan& plan) {
  const model::Geometry& g = request.geometry;
  std::string text = fmt::format(
      "{}: {} layers ({} full, {} linear attention), hidden {}, vocabulary {}, {} head\n"
      "{} rank(s), linear attention {}; steps of up to {} tokens; bytes per rank\n",
      g.name, g.layer_count(), g.full_layers(), g.linear_layers(), g.hidden, g.vocab, g.tied ? "tied" : "untied",
      request.world, name(request.linear_attention), request.limits.max_tokens);
  for (std::size_t first = 0; first < plan.ranks.size();) {
    std::size_t last = first;
    while (last + 1 < plan.ranks.size() && same_sum(plan.ranks[first], plan.ranks[last + 1])) ++last;
    text += first == last ? fmt::format("rank {}\n", plan.ranks[first].rank)
                          : fmt::format("ranks {} to {}, each\n", plan.ranks[first].rank, plan.ranks[last].rank);
    text += rank_text(plan.ranks[first], plan);
    first = last + 1;
  }
  text += fmt::format("capacity: {} requests at once, {} tokens in KV pages, longest request {} tokens\n", plan.slots,
                      grouped(std::int64_t{plan.pages} * ops::kPageTokens), grouped(plan.longest_request));
  return text;
}

std::string plan_json(const PlanRequest& request, const CapacityPlan& plan) {
  const model::Geometry& g = request.geometry;
  JsonWriter json;
  json.begin_object().member("model", g.name).member("layers", g.layer_count());
  json.member("full_attention_layers", g.full_layers()).member("linear_attention_layers", g.linear_layers());
  json.member("hidden_size", g.hidden).member("vocab_size", g.vocab).member("tied", g.tied);
  json.member("world", request.world).member("linear_attention", name(request.linear_attention));
  json.member("max_step_tokens", request.limits.max_tokens).member("max_requests", plan.slots);
  json.member("kv_pages", plan.pages).member("kv_page_tokens", ops::kPageTokens);
  json.member("longest_request", plan.longest_request);
  json.key("ranks").begin_array();
  for (const RankPlan& rank : plan.ranks) {
    json.begin_object().member("rank", rank.rank).key("weight_bytes").begin_object();
    for (const GroupBytes& entry : rank.weights) json.member(name(entry.group), entry.bytes);
    json.member("all", rank.weight_bytes).end_object();
    json.member("widening_bytes", rank.widening_bytes).member("scratch_bytes", rank.scratch_bytes);
    json.member("sampler_bytes", rank.sampler_bytes).member("communication_bytes", rank.communication_bytes);
    json.member("reserve_bytes", rank.reserve_bytes);
    json.member("state_slot_bytes", rank.slot_bytes).member("state_slots", rank.slots);
    json.member("kv_page_bytes", rank.page_bytes);
    json.member("sum_bytes", rank.fixed_bytes() + std::int64_t{plan.pages} * rank.page_bytes);
    if (rank.device_bytes > 0) json.member("device_bytes", rank.device_bytes);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace tandem::memory
