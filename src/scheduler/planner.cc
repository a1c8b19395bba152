#include "scheduler/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "memory/page_table.h"

namespace tandem::scheduler {
namespace {

constexpr std::int32_t kChunk = ops::kPageTokens;
// How many that decode stand against one that queues: docs/decisions/steps-and-budgets.md has the figures.
constexpr std::int64_t kQueueWeight = 4;

rank::Row decode_row(const Progress& request) {
  rank::Row row;
  row.request = request.spec->id;
  row.slot = request.slot;
  row.kind = ops::RowKind::Decode;
  row.base_pos = request.run;
  row.tokens = 1;
  if (request.last != ops::kLastSampled) row.ids = {request.last};
  row.samples = true;
  row.generated = request.generated;
  row.top_logprobs = request.spec->top_logprobs;
  return row;
}

rank::Row prefill_row(const Progress& request, std::int32_t tokens) {
  const RequestSpec& spec = *request.spec;
  const std::int32_t end = request.run + tokens;
  rank::Row row;
  row.request = spec.id;
  row.slot = request.slot;
  row.kind = ops::RowKind::Prefill;
  row.base_pos = request.run;
  row.tokens = tokens;
  row.ids.assign(spec.prompt.begin() + request.run, spec.prompt.begin() + end);
  if (request.run == 0) row.sampling = spec.sampling;
  row.samples = end == spec.prompt_tokens();
  row.generated = request.generated;
  row.top_logprobs = row.samples ? spec.top_logprobs : -1;
  row.prompt_logprobs = spec.prompt_logprobs;
  if (!row.samples) row.prompt_next = spec.prompt[static_cast<std::size_t>(end)];
  return row;
}

// The largest chunk within `budget`: the prompt's rest, or an end on a multiple of 64; 0 if neither fits.
std::int32_t chunk_tokens(const Progress& request, std::int32_t budget) {
  const std::int32_t rest = request.spec->prompt_tokens() - request.run;
  if (rest <= budget) return rest;
  const std::int32_t end = (request.run + budget) / kChunk * kChunk;
  return std::max(end - request.run, 0);
}

}  // namespace

Result<void> check_limits(const Limits& limits) {
  if (limits.slots < 1)
    return fail(ErrorKind::Invalid,
                fmt::format("[planner] {} state slots; at least 1 is needed", limits.slots), "max-requests");
  if (limits.pages < 1)
    return fail(ErrorKind::Invalid, fmt::format("[planner] {} KV pages; at least 1 is needed", limits.pages),
                "kv-memory");
  if (limits.max_context < 2)
    return fail(
        ErrorKind::Invalid,
        fmt::format("[planner] max-context {} holds no prompt and no answer; at least 2 tokens are needed",
                    limits.max_context),
        "max-context");
  if (limits.max_step_tokens < kChunk)
    return fail(
        ErrorKind::Invalid,
        fmt::format("[planner] max-step-tokens {} is less than one prompt chunk; at least {} is needed",
                    limits.max_step_tokens, kChunk),
        "max-step-tokens");
  // A prefilling request holds a slot itself, so at most slots - 1 decode rows stand beside its chunk.
  const std::int32_t least = limits.mixed ? limits.slots - 1 + kChunk : limits.slots;
  if (limits.max_mixed_tokens < least)
    return fail(
        ErrorKind::Invalid,
        fmt::format("[planner] max-mixed-tokens {} leaves no room for {} beside the decode rows of {} "
                    "requests; at least {} is needed (or a smaller --max-requests)",
                    limits.max_mixed_tokens, limits.mixed ? "a prompt chunk of 64" : "one more row",
                    limits.slots, least),
        "max-mixed-tokens");
  return {};
}

std::int64_t pages_for_life(std::int32_t prompt_tokens, std::int32_t max_tokens) {
  return memory::pages_for(memory::lifetime_tokens(prompt_tokens, max_tokens));
}

Result<void> check_fits(const Limits& limits, std::int32_t prompt_tokens, std::int32_t max_tokens) {
  const std::int64_t total = std::int64_t{prompt_tokens} + max_tokens;
  if (total > limits.max_context)
    return fail(
        ErrorKind::Capacity,
        fmt::format("{} prompt tokens and max_tokens {} make {}, more than the context of {} tokens; a "
                    "prompt of this length can have at most {} completion tokens",
                    prompt_tokens, max_tokens, total, limits.max_context,
                    std::max(limits.max_context - prompt_tokens, 0)),
        "max_tokens");
  if (pages_for_life(prompt_tokens, max_tokens) > limits.pages) {
    const std::int32_t longest = longest_life(limits.max_context, limits.pages);
    return fail(
        ErrorKind::Capacity,
        fmt::format("{} prompt tokens and max_tokens {} need {} KV pages, this server has {} ({} tokens); a "
                    "prompt of this length can have at most {} completion tokens",
                    prompt_tokens, max_tokens, pages_for_life(prompt_tokens, max_tokens), limits.pages,
                    std::int64_t{limits.pages} * kChunk, std::max(longest - prompt_tokens, 0)),
        "max_tokens");
  }
  return {};
}

StepShape shape(const rank::Step& step) {
  StepShape shape;
  shape.rows = static_cast<std::int32_t>(step.rows.size());
  for (const rank::Row& row : step.rows) {
    shape.decode_rows += row.kind == ops::RowKind::Decode ? 1 : 0;
    shape.tokens += row.tokens;
  }
  return shape;
}

std::int32_t step_budget(const Limits& limits, std::int32_t decoding, std::int32_t waiting) {
  if (decoding == 0) return limits.max_step_tokens;
  const std::int64_t queued = std::max(waiting - 1, 0);
  const std::int64_t wanted = limits.max_mixed_tokens * kQueueWeight * queued / decoding;
  const std::int64_t most = std::max(limits.max_mixed_tokens, limits.max_step_tokens);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, limits.max_mixed_tokens, most));
}

rank::Step plan(const Limits& limits, std::span<const Progress> live, bool after_prefill) {
  std::int32_t decoding = 0, waiting = 0;
  for (const Progress& request : live) {
    if (!request.decoding())
      waiting += 1;
    else if (!request.exhausted())
      decoding += 1;
  }
  // Mixed off: with both kinds at hand they alternate.
  const bool decode_now = decoding > 0 && (limits.mixed || waiting == 0 || after_prefill);
  const bool prefill_now = waiting > 0 && (limits.mixed || !decode_now);

  rank::Step step;
  step.rows.reserve(live.size());
  if (decode_now)
    for (const Progress& request : live)
      if (request.decoding() && !request.exhausted()) step.rows.push_back(decode_row(request));
  std::int32_t budget = step_budget(limits, decoding, waiting) - static_cast<std::int32_t>(step.rows.size());
  if (!limits.mixed) budget = std::clamp(budget, kChunk, limits.max_step_tokens);
  if (prefill_now)
    for (const Progress& request : live) {
      if (request.decoding()) continue;
      if (budget == 0) break;
      const std::int32_t tokens = chunk_tokens(request, budget);
      if (tokens == 0) continue;  // a later, shorter prompt may still fill what the oldest could not use
      step.rows.push_back(prefill_row(request, tokens));
      budget -= tokens;
    }
  return step;
}

}  // namespace tandem::scheduler
