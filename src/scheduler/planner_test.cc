#include "scheduler/planner.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace tandem::scheduler {
namespace {

// proves R5.2
TEST(Planner, WholeLifeCountsEveryTokenButTheLast) {
  EXPECT_EQ(pages_for_life(64, 1), 1);
  EXPECT_EQ(pages_for_life(64, 2), 2);
  EXPECT_EQ(pages_for_life(1, 64), 1);
  EXPECT_EQ(pages_for_life(1, 65), 2);
  EXPECT_EQ(pages_for_life(64, 65), 2);
  EXPECT_EQ(pages_for_life(64, 66), 3);
}

// proves R5.3
TEST(Planner, WhatCanNeverFitIsRefusedWithTheLimit) {
  const Limits pool{
      .slots = 1, .pages = 3, .max_context = 1000, .max_step_tokens = 64, .max_mixed_tokens = 64};
  EXPECT_EQ(longest_life(pool.max_context, pool.pages), 193);
  EXPECT_TRUE(check_fits(pool, 64, 129));
  const auto refused = check_fits(pool, 64, 130);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
  EXPECT_NE(refused.error().message.find("at most 129"), std::string::npos) << refused.error().message;

  const Limits context{
      .slots = 1, .pages = 100, .max_context = 100, .max_step_tokens = 64, .max_mixed_tokens = 64};
  EXPECT_TRUE(check_fits(context, 60, 40));
  EXPECT_FALSE(check_fits(context, 60, 41));
  EXPECT_FALSE(check_fits(context, 60, 2147483647));
}

TEST(Planner, BudgetsThatWouldStarveSomebodyAreRefusedWithTheFlag) {
  const Limits good{
      .slots = 8, .pages = 8, .max_context = 100, .max_step_tokens = 64, .max_mixed_tokens = 71};
  EXPECT_TRUE(check_limits(good));
  const auto flag = [&](auto change) {
    Limits limits = good;
    change(limits);
    const auto checked = check_limits(limits);
    return checked ? std::string("accepted") : checked.error().field;
  };
  EXPECT_EQ(flag([](Limits& l) { l.max_step_tokens = 63; }), "max-step-tokens");
  EXPECT_EQ(flag([](Limits& l) { l.max_mixed_tokens = 70; }), "max-mixed-tokens");
  EXPECT_EQ(flag([](Limits& l) { l.max_mixed_tokens = 8, l.mixed = false; }), "accepted");
  EXPECT_EQ(flag([](Limits& l) { l.max_mixed_tokens = 7, l.mixed = false; }), "max-mixed-tokens");
  EXPECT_EQ(flag([](Limits& l) { l.slots = 0; }), "max-requests");
  EXPECT_EQ(flag([](Limits& l) { l.pages = 0; }), "kv-memory");
  EXPECT_EQ(flag([](Limits& l) { l.max_context = 1; }), "max-context");
}

TEST(Planner, TheBudgetOfAStepGrowsOnlyWithThoseWhoQueueBehindThePromptBeingRead) {
  const Limits limits{
      .slots = 64, .pages = 8, .max_context = 100, .max_step_tokens = 8192, .max_mixed_tokens = 1024};
  EXPECT_EQ(step_budget(limits, 0, 0), 8192);
  EXPECT_EQ(step_budget(limits, 0, 5), 8192);  // nobody's token waits for the step
  EXPECT_EQ(step_budget(limits, 8, 0), 1024);
  EXPECT_EQ(step_budget(limits, 1, 1), 1024);  // one prompt, however long
  EXPECT_EQ(step_budget(limits, 8, 3), 1024);
  EXPECT_EQ(step_budget(limits, 8, 4), 1536);
  EXPECT_EQ(step_budget(limits, 1, 2), 4096);
  EXPECT_EQ(step_budget(limits, 1, 63), 8192);  // never more than a step without decode rows
}

TEST(Planner, AMixedBudgetAboveAStepsIsTheWholeBudget) {
  const Limits limits{
      .slots = 64, .pages = 8, .max_context = 100, .max_step_tokens = 512, .max_mixed_tokens = 2048};
  EXPECT_EQ(step_budget(limits, 0, 9), 512);
  EXPECT_EQ(step_budget(limits, 1, 9), 2048);
}

// Requests in any state that a run of plans can reach, in order of admission.
struct World {
  Limits limits;
  std::deque<RequestSpec> specs;
  std::vector<Progress> live;
};

World any_world() {
  World world;
  const int requests = *rc::gen::inRange(0, 12);
  world.limits.slots = std::max(1, requests + *rc::gen::inRange(0, 4));
  world.limits.max_step_tokens = *rc::gen::inRange(64, 600);
  world.limits.max_mixed_tokens = world.limits.slots + 63 + *rc::gen::inRange(0, 300);
  world.limits.mixed = *rc::gen::arbitrary<bool>();
  for (int i = 0; i < requests; ++i) {
    RequestSpec& spec = world.specs.emplace_back();
    spec.id = {static_cast<std::uint64_t>(i) + 1};
    spec.prompt.assign(static_cast<std::size_t>(*rc::gen::inRange(1, 700)), 7);
    spec.max_tokens = *rc::gen::inRange(1, 30);
    spec.top_logprobs = *rc::gen::inRange(-1, 4);
    spec.prompt_logprobs = *rc::gen::inRange(-1, 4);
    Progress progress{.spec = &spec, .slot = SlotId{i}};
    if (*rc::gen::arbitrary<bool>()) {  // decoding
      progress.generated = *rc::gen::inRange(1, spec.max_tokens + 1);
      progress.run = spec.prompt_tokens() + progress.generated - 1;
      progress.last = *rc::gen::element(TokenId{5}, ops::kLastSampled);
    } else {
      progress.run = *rc::gen::inRange(0, (spec.prompt_tokens() - 1) / 64 + 1) * 64;
    }
    world.live.push_back(progress);
  }
  return world;
}

// Of a step with prompt chunks.
std::int32_t budget_of(const World& world) {
  std::int32_t decoding = 0, waiting = 0;
  for (const Progress& request : world.live) {
    waiting += request.decoding() ? 0 : 1;
    decoding += request.decoding() && !request.exhausted() ? 1 : 0;
  }
  const std::int32_t budget = step_budget(world.limits, decoding, waiting);
  return world.limits.mixed ? budget : std::clamp(budget, 64, world.limits.max_step_tokens);
}

void check_row(const rank::Row& row, const Progress& request) {
  const RequestSpec& spec = *request.spec;
  RC_ASSERT(row.slot == request.slot);
  RC_ASSERT(row.base_pos == request.run);
  RC_ASSERT(row.generated == request.generated);
  RC_ASSERT(row.sampling.has_value() == (row.base_pos == 0));
  if (row.kind == ops::RowKind::Decode) {
    RC_ASSERT(request.decoding() && !request.exhausted());
    RC_ASSERT(row.tokens == 1 && row.samples);
    const bool takes_last = request.last == ops::kLastSampled;
    RC_ASSERT(row.ids == (takes_last ? std::vector<TokenId>{} : std::vector<TokenId>{request.last}));
    RC_ASSERT(row.top_logprobs == spec.top_logprobs);
    RC_ASSERT(row.prompt_logprobs == -1);
    return;
  }
  const std::int32_t end = row.base_pos + row.tokens;
  RC_ASSERT(!request.decoding());
  RC_ASSERT(row.tokens >= 1 && end <= spec.prompt_tokens());
  RC_ASSERT(row.samples == (end == spec.prompt_tokens()));
  RC_ASSERT(row.samples || end % 64 == 0);
  RC_ASSERT(std::ssize(row.ids) == row.tokens);
  RC_ASSERT(row.prompt_logprobs == spec.prompt_logprobs);
  RC_ASSERT(row.prompt_next == (row.samples ? -1 : spec.prompt[static_cast<std::size_t>(end)]));
}

// proves R2.5: nothing that an executor would refuse
TEST(PlannerProperty, EveryRowIsItsRequestsNextPieceWithinTheBudget) {
  EXPECT_TRUE(rc::check("rows and budgets", [] {
    const World world = any_world();
    const rank::Step step = plan(world.limits, world.live, *rc::gen::arbitrary<bool>());
    std::vector<RequestId> seen;
    const StepShape of = shape(step);
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      const rank::Row& row = step.rows[i];
      RC_ASSERT((row.kind == ops::RowKind::Decode) == (static_cast<std::int32_t>(i) < of.decode_rows));
      check_row(row, world.live[row.request.value - 1]);
      seen.push_back(row.request);
    }
    RC_ASSERT(of.tokens <= (of.decode_rows == of.rows ? world.limits.max_mixed_tokens : budget_of(world)));
    if (!world.limits.mixed) RC_ASSERT(of.decode_rows == 0 || of.decode_rows == of.rows);
    std::sort(seen.begin(), seen.end());
    RC_ASSERT(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  }));
}

TEST(PlannerProperty, MoreWhoWaitNeverMeanLessAndMoreWhoDecodeNeverMeanMore) {
  EXPECT_TRUE(rc::check("budgets are monotonous and bounded", [] {
    Limits limits;
    limits.max_step_tokens = *rc::gen::inRange(64, 1 << 20);
    limits.max_mixed_tokens = *rc::gen::inRange(64, 1 << 20);
    const std::int32_t decoding = *rc::gen::inRange(1, 2000), waiting = *rc::gen::inRange(0, 2000);
    const std::int32_t budget = step_budget(limits, decoding, waiting);
    RC_ASSERT(budget >= limits.max_mixed_tokens);
    RC_ASSERT(budget <= std::max(limits.max_mixed_tokens, limits.max_step_tokens));
    RC_ASSERT(step_budget(limits, decoding, waiting + 1) >= budget);
    RC_ASSERT(step_budget(limits, decoding + 1, waiting) <= budget);
    if (waiting <= 1 || 4 * (waiting - 1) <= decoding) RC_ASSERT(budget == limits.max_mixed_tokens);
  }));
}

TEST(PlannerProperty, MixedStepsServeEveryDecodeRowAndTheOldestPrompt) {
  EXPECT_TRUE(rc::check("nobody starves", [] {
    World world = any_world();
    world.limits.mixed = true;
    const rank::Step step = plan(world.limits, world.live, *rc::gen::arbitrary<bool>());
    const auto has_row = [&](RequestId id) {
      return std::any_of(step.rows.begin(), step.rows.end(),
                         [&](const rank::Row& row) { return row.request == id; });
    };
    bool oldest = true;
    for (const Progress& request : world.live) {
      if (request.decoding()) {
        RC_ASSERT(has_row(request.spec->id) == !request.exhausted());
      } else if (oldest) {
        RC_ASSERT(has_row(request.spec->id));
        oldest = false;
      }
    }
  }));
}

TEST(PlannerProperty, WithMixedOffTheKindsTakeTurns) {
  EXPECT_TRUE(rc::check("turns", [] {
    World world = any_world();
    world.limits.mixed = false;
    bool can_decode = false, can_prefill = false;
    for (const Progress& request : world.live) {
      can_prefill = can_prefill || !request.decoding();
      can_decode = can_decode || (request.decoding() && !request.exhausted());
    }
    for (const bool after_prefill : {false, true}) {
      const StepShape of = shape(plan(world.limits, world.live, after_prefill));
      RC_ASSERT((of.rows > 0) == (can_decode || can_prefill));
      if (can_decode && can_prefill) RC_ASSERT((of.decode_rows > 0) == after_prefill);
    }
  }));
}

TEST(PlannerProperty, APromptGetsAllThatTheBudgetLeavesAtItsTurn) {
  EXPECT_TRUE(rc::check("first come first served", [] {
    const World world = any_world();
    const rank::Step step = plan(world.limits, world.live, *rc::gen::arbitrary<bool>());
    const StepShape of = shape(step);
    if (of.rows == of.decode_rows) return;
    std::int32_t budget = budget_of(world) - of.decode_rows;
    for (const Progress& request : world.live) {
      if (request.decoding()) continue;
      const auto row = std::find_if(step.rows.begin(), step.rows.end(),
                                    [&](const rank::Row& r) { return r.request == request.spec->id; });
      const std::int32_t got = row == step.rows.end() ? 0 : row->tokens;
      const std::int32_t rest = request.spec->prompt_tokens() - request.run;
      RC_ASSERT(got == (rest <= budget ? rest : budget / 64 * 64));
      budget -= got;
    }
  }));
}

TEST(PlannerProperty, PlanningIsAFunctionOfItsArguments) {
  EXPECT_TRUE(rc::check("pure", [] {
    const World world = any_world();
    const bool turn = *rc::gen::arbitrary<bool>();
    const rank::Step a = plan(world.limits, world.live, turn), b = plan(world.limits, world.live, turn);
    RC_ASSERT(a.rows.size() == b.rows.size());
    for (std::size_t i = 0; i < a.rows.size(); ++i) {
      RC_ASSERT(a.rows[i].request == b.rows[i].request && a.rows[i].tokens == b.rows[i].tokens);
    }
  }));
}

}  // namespace
}  // namespace tandem::scheduler
