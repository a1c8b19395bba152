// The rules of a request's life, one at a time, over the fake executor. What can happen in combination is
// scheduler_sim_test.cc's.

#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "scheduler/fake_executor.h"

namespace tandem::scheduler {
namespace {

constexpr std::int32_t kVocab = 1000;

// One thread, turn by turn. Everything that is seen is written into `log` in order:
// "step 1p 2d" (row kinds by request), "drop 1+" (must exist) or "drop 1-", "token 1", "end 1 Length".
struct World final : Listener {
  explicit World(Limits limits_in = {}, FakeExecutor::Options options = {}, int steps_in_flight = 1)
      : limits(limits_in), mailbox(1000) {
    if (limits.slots == 0)
      limits = {
          .slots = 4, .pages = 64, .max_context = 2000, .max_step_tokens = 256, .max_mixed_tokens = 128};
    options.capacity = {.slots = limits.slots,
                        .pages = limits.pages,
                        .max_context = limits.max_context,
                        .max_step_tokens = limits.max_step_tokens,
                        .max_mixed_tokens = limits.max_mixed_tokens,
                        .vocab = kVocab};
    options.mixed = limits.mixed;
    options.max_in_flight = steps_in_flight;
    executor = std::make_unique<FakeExecutor>(options);
    executor->on_step = [this](const rank::Step& step) {
      std::string line = "step";
      for (const rank::Row& row : step.rows)
        line += " " + std::to_string(row.request.value) + (row.kind == ops::RowKind::Decode ? "d" : "p");
      log.push_back(line);
      steps.push_back(step);
    };
    executor->on_drop = [this](std::span<const rank::Drop> drops) {
      std::string line = "drop";
      for (const rank::Drop& drop : drops)
        line += " " + std::to_string(drop.request.value) +
                (drop.expectation == rank::Expectation::MustExist ? "+" : "-");
      log.push_back(line);
      load_at_drop = scheduler->load();
    };
    executor->on_wait = [this] {
      if (while_waiting) while_waiting();
    };
    scheduler =
        std::make_unique<Scheduler>(Scheduler::Settings{limits, steps_in_flight}, *executor, mailbox, *this);
  }

  void on_updates(std::vector<Update> updates) override {
    for (Update& update : updates) {
      const std::string who = std::to_string(update.request.value);
      if (update.token) log.push_back("token " + who);
      if (update.token) tokens[update.request].push_back(update.token->id);
      if (!update.end) continue;
      const EndReason reason = update.end->reason;
      log.push_back("end " + who + " " +
                    (reason == EndReason::EndId        ? "EndId"
                     : reason == EndReason::StopString ? "StopString"
                     : reason == EndReason::Length     ? "Length"
                                                       : std::string(name(update.end->error.kind))));
      ends[update.request] = *update.end;
    }
  }

  RequestId submit(std::int32_t prompt, std::int32_t max_tokens, std::vector<TokenId> end_ids = {}) {
    RequestSpec spec;
    spec.id = mailbox.next_id();
    spec.prompt = prompt_of(spec.id, prompt);
    spec.max_tokens = max_tokens;
    spec.end_ids = std::move(end_ids);
    const RequestId id = spec.id;
    EXPECT_TRUE(mailbox.submit(std::move(spec)));
    return id;
  }
  // One turn; what it logged.
  std::vector<std::string> tick() {
    log.clear();
    turn = scheduler->tick();
    return log;
  }
  void run_until_idle() {
    for (int i = 0; i < 10000 && turn != Scheduler::Turn::Idle; ++i) turn = scheduler->tick();
    EXPECT_EQ(turn, Scheduler::Turn::Idle);
  }
  static std::vector<TokenId> prompt_of(RequestId id, std::int32_t tokens) {
    std::vector<TokenId> ids;
    for (std::int32_t i = 0; i < tokens; ++i)
      ids.push_back(static_cast<TokenId>((i * 7 + static_cast<std::int32_t>(id.value)) % kVocab));
    return ids;
  }
  static std::vector<TokenId> alone(RequestId id, std::int32_t prompt, std::int32_t tokens_wanted) {
    return FakeExecutor::solo(prompt_of(id, prompt), {}, tokens_wanted, kVocab);
  }

  Limits limits;
  Mailbox mailbox;
  std::unique_ptr<FakeExecutor> executor;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<std::string> log;
  std::vector<rank::Step> steps;
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::map<RequestId, End> ends;
  Load load_at_drop;
  std::function<void()> while_waiting;
  Scheduler::Turn turn = Scheduler::Turn::Busy;
};

using Log = std::vector<std::string>;

// proves R4.3
TEST(Scheduler, TheEndAndTheLastTokenComeAfterTheDrop) {
  World world;
  world.submit(10, 2);
  EXPECT_EQ(world.tick(), (Log{"step 1p", "token 1"}));
  EXPECT_EQ(world.tick(), (Log{"step 1d"}));
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "token 1", "end 1 Length"}));
  EXPECT_EQ(world.turn, Scheduler::Turn::Idle);
}

// proves R4.3
TEST(Scheduler, AFirstTokenThatIsAlsoTheLastIsWithheldToo) {
  World world;
  world.submit(10, 1);
  EXPECT_EQ(world.tick(), (Log{"step 1p"}));
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "token 1", "end 1 Length"}));
}

// proves R4.3
TEST(Scheduler, IfTheDropFailsEverybodyGetsTheErrorOnly) {
  FakeExecutor::Options options;
  options.fault = [](std::string_view operation, std::uint64_t) -> Result<void> {
    if (operation == "drop") return fail(ErrorKind::Protocol, "ranks disagree");
    return {};
  };
  World world({.slots = 1, .pages = 4, .max_context = 256, .max_step_tokens = 64, .max_mixed_tokens = 64},
              options);
  world.submit(10, 1);
  const RequestId queued = world.submit(10, 1);
  (void)world.tick();
  world.mailbox.cancel(queued);
  EXPECT_EQ(world.tick(), (Log{"end 2 Poisoned", "end 1 Poisoned"}));
  EXPECT_EQ(world.turn, Scheduler::Turn::Ended);
}

// proves R4.4: the drop, then the load without it, then a newcomer admitted and run in its place
TEST(Scheduler, ACancelledRequestsPlaceServesAnotherInTheSameTick) {
  World world({.slots = 1, .pages = 4, .max_context = 256, .max_step_tokens = 64, .max_mixed_tokens = 64});
  const RequestId first = world.submit(100, 50);
  const RequestId second = world.submit(60, 3);
  EXPECT_EQ(world.tick(), (Log{"step 1p"}));
  EXPECT_EQ(world.scheduler->load().waiting, 2);  // published before the admission
  world.mailbox.cancel(first);
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "end 1 Cancelled", "step 2p", "token 2"}));
  EXPECT_EQ(world.load_at_drop.running, 0);  // the load of the tick before
  EXPECT_EQ(world.scheduler->load().running, 0);
  EXPECT_EQ(world.scheduler->load().waiting, 1);
  EXPECT_EQ(world.scheduler->load().pages_used, 0);
  EXPECT_EQ(world.steps.back().rows[0].slot, SlotId{0});
  world.run_until_idle();
  EXPECT_EQ(world.tokens[second], world.alone(second, 60, 3));
}

// proves R4.2 R4.6
TEST(Scheduler, ARequestCancelledInTheQueueIsNeverRun) {
  World world({.slots = 1, .pages = 4, .max_context = 256, .max_step_tokens = 64, .max_mixed_tokens = 64});
  world.submit(10, 100);
  const RequestId second = world.submit(10, 5);
  (void)world.tick();
  world.mailbox.cancel(second);
  EXPECT_EQ(world.tick(), (Log{"drop 2-", "end 2 Cancelled", "step 1d", "token 1"}));
}

// proves R4.2: admitted, but the budget gave it no row yet
TEST(Scheduler, ARequestCancelledBeforeItsFirstRowMustBeAbsent) {
  World world({.slots = 2, .pages = 8, .max_context = 256, .max_step_tokens = 64, .max_mixed_tokens = 65});
  world.submit(200, 5);
  const RequestId second = world.submit(100, 5);
  EXPECT_EQ(world.tick(), (Log{"step 1p"}));
  (void)world.tick();
  EXPECT_EQ(world.scheduler->load().running, 2);
  world.mailbox.cancel(second);
  EXPECT_EQ(world.tick()[0], "drop 2-");
}

// proves R4.6 R2.6
TEST(Scheduler, ARequestCancelledInFlightGivesNoTokenMore) {
  World world;
  const RequestId first = world.submit(10, 5);
  world.submit(12, 5);
  (void)world.tick();
  world.while_waiting = [&] { world.mailbox.cancel(first); };
  EXPECT_EQ(world.tick(), (Log{"step 1d 2d", "token 2"}));
  world.while_waiting = nullptr;
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "end 1 Cancelled", "step 2d", "token 2"}));
}

// proves R4.6
TEST(Scheduler, ARequestCancelledBetweenChunksIsDroppedAndItsPagesAreFree) {
  World world;
  const RequestId first = world.submit(1000, 5);
  (void)world.tick();
  (void)world.tick();
  world.mailbox.cancel(first);
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "end 1 Cancelled"}));
  EXPECT_EQ(world.scheduler->load().pages_used, 0);
  EXPECT_EQ(world.turn, Scheduler::Turn::Idle);
}

// B015. proves R4.6: the last of three prompts that share steps leaves in the middle of its own; no token of
// it comes out, and no later step has a row of it or an id that is none of the vocabulary.
TEST(Scheduler, OneOfThreePromptsThatShareStepsLeavesWithoutATrace) {
  for (const int steps_in_flight : {1, 2}) {
    World world(
        {.slots = 3, .pages = 64, .max_context = 1000, .max_step_tokens = 128, .max_mixed_tokens = 96}, {},
        steps_in_flight);
    const RequestId first = world.submit(3 * 128, 40), second = world.submit(3 * 128, 40),
                    third = world.submit(3 * 128, 40);
    const auto has_row = [&](const rank::Step& step) {
      return std::ranges::any_of(step.rows, [&](const rank::Row& row) { return row.request == third; });
    };
    while (world.steps.empty() || !has_row(world.steps.back())) (void)world.tick();
    const std::size_t before = world.steps.size();
    ASSERT_GT(world.steps.back().rows.size(), 1u);  // it shares the step
    world.mailbox.cancel(third);
    world.run_until_idle();
    EXPECT_EQ(world.ends[third].error.kind, ErrorKind::Cancelled);
    EXPECT_TRUE(world.tokens[third].empty());
    EXPECT_EQ(world.tokens[first], world.alone(first, 3 * 128, 40));
    EXPECT_EQ(world.tokens[second], world.alone(second, 3 * 128, 40));
    for (std::size_t i = 0; i < world.steps.size(); ++i) {
      if (i >= before) {
        EXPECT_FALSE(has_row(world.steps[i])) << "step " << i << " of " << before;
      }
      for (const rank::Row& row : world.steps[i].rows)
        for (const TokenId id : row.ids) EXPECT_TRUE(id >= 0 && id < kVocab) << id;
    }
    EXPECT_EQ(world.scheduler->load().pages_used, 0);
  }
}

TEST(Scheduler, AStopDiscardsLaterTokensAndBeatsALaterLength) {
  World world;
  const RequestId id = world.submit(10, 3);
  (void)world.tick();
  (void)world.tick();
  world.while_waiting = [&] { world.mailbox.stop_at(id, 0); };
  EXPECT_EQ(world.tick(), (Log{"step 1d"}));
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "end 1 StopString"}));
  EXPECT_EQ(world.ends[id].completion_tokens, 1);
}

TEST(Scheduler, AStopThatComesAfterTheEndWasDecidedStillBeatsIt) {
  World world;
  const RequestId id = world.submit(10, 3);
  for (int i = 0; i < 3; ++i) (void)world.tick();
  world.mailbox.stop_at(id, 1);
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "end 1 StopString"}));
  EXPECT_EQ(world.ends[id].completion_tokens, 2);
}

TEST(Scheduler, AStopBeatsNeitherACancellationNorAnEarlierEnd) {
  World world;
  const RequestId cancelled = world.submit(10, 9);
  const RequestId ended = world.submit(12, 2);
  (void)world.tick();
  (void)world.tick();
  world.mailbox.cancel(cancelled);
  world.mailbox.stop_at(cancelled, 0);
  world.mailbox.stop_at(ended, 1);  // its last token
  EXPECT_EQ(world.tick(), (Log{"drop 1+ 2+", "end 1 Cancelled", "token 2", "end 2 Length"}));
}

// proves R2.7
TEST(Scheduler, NonFiniteLogitsEndThatRequestOnly) {
  FakeExecutor::Options options;
  options.spoil = [](const rank::Row& row, rank::Artifact& artifact) {
    if (row.request == RequestId{1} && row.generated == 1) artifact.choice->non_finite = 1;
  };
  World world({}, options);
  world.submit(10, 5);
  const RequestId second = world.submit(20, 5);
  (void)world.tick();
  EXPECT_EQ(world.tick(), (Log{"step 1d 2d", "token 2"}));
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "end 1 Device", "step 2d", "token 2"}));
  world.run_until_idle();
  EXPECT_EQ(world.tokens[second], world.alone(second, 20, 5));
}

// proves R3.3
TEST(Scheduler, AFatalFailureIsToldOnceToQueuedRunningAndEndedAlike) {
  FakeExecutor::Options options;
  options.fault = [](std::string_view operation, std::uint64_t number) -> Result<void> {
    if (operation == "step" && number >= 4) return fail(ErrorKind::Device, "rank 1: lost");
    return {};
  };
  World world({.slots = 2, .pages = 8, .max_context = 256, .max_step_tokens = 64, .max_mixed_tokens = 65},
              options);
  for (int i = 0; i < 3; ++i) world.submit(10, 50);
  (void)world.tick();
  world.while_waiting = [&] { world.submit(10, 5); };  // comes while the failing step runs
  const Log log = world.tick();
  EXPECT_EQ(world.turn, Scheduler::Turn::Ended);
  EXPECT_EQ(log.front(), "step 1d 2d");
  EXPECT_EQ(world.ends.size(), 4u);
  for (const auto& [id, end] : world.ends) {
    EXPECT_EQ(end.error.kind, ErrorKind::Poisoned);
    EXPECT_NE(end.error.message.find("rank 1: lost"), std::string::npos);
  }
  EXPECT_EQ(world.scheduler->load().running + world.scheduler->load().waiting + world.scheduler->load().slots,
            0);
  EXPECT_EQ(world.mailbox.submit(RequestSpec{.id = world.mailbox.next_id()}).error().kind,
            ErrorKind::Poisoned);
  EXPECT_EQ(world.executor->seen().drops, 0u);
}

// proves R5.3: small requests that would fit do not overtake the large one at the head
TEST(Scheduler, AWaitingLargeRequestIsNotStarvedBySmallOnes) {
  World world({.slots = 4, .pages = 4, .max_context = 256, .max_step_tokens = 256, .max_mixed_tokens = 128});
  world.submit(10, 100);
  (void)world.tick();
  const RequestId large = world.submit(200, 50);
  for (int i = 0; i < 200; ++i) {
    world.submit(10, 5);
    (void)world.tick();
    if (world.ends.contains(large)) break;
    const bool small_ran = world.steps.back().rows.back().request > large;
    EXPECT_FALSE(small_ran && world.tokens[large].empty());
  }
  EXPECT_EQ(world.ends[large].reason, EndReason::Length);
}

// B038, B039. proves R5.2: the reservation is never too short for the last step, nor for anybody in between
TEST(Scheduler, WhatIsAdmittedRunsToItsLastTokenOnAFullPool) {
  for (const auto& [prompt, tokens] :
       {std::pair{64, 65}, {64, 129}, {1, 64}, {1, 65}, {65, 64}, {129, 64}, {64, 1}}) {
    World world({.slots = 1, .pages = 3, .max_context = 1000, .max_step_tokens = 64, .max_mixed_tokens = 64});
    ASSERT_TRUE(check_fits(world.limits, prompt, tokens));
    const RequestId id = world.submit(prompt, tokens);
    world.run_until_idle();
    EXPECT_EQ(world.tokens[id], world.alone(id, prompt, tokens));
  }
  World world(
      {.slots = 8, .pages = 15, .max_context = 10000, .max_step_tokens = 256, .max_mixed_tokens = 128});
  EXPECT_FALSE(check_fits(world.limits, 50, 5000));
  for (int i = 0; i < 8; ++i) world.submit(50, 400);
  world.run_until_idle();
  ASSERT_EQ(world.ends.size(), 8u);
  for (const auto& [id, end] : world.ends) EXPECT_EQ(end.completion_tokens, 400);
  EXPECT_EQ(world.executor->seen().prefill_tokens, 8u * 50u);  // every prompt is run once
}

// proves R5.4
TEST(Scheduler, AfterPressureEverythingIsFreeAndANewRequestCompletes) {
  World world({.slots = 3, .pages = 12, .max_context = 500, .max_step_tokens = 128, .max_mixed_tokens = 80});
  for (int i = 0; i < 50; ++i) {
    const RequestId id = world.submit(1 + i * 7, 1 + i % 9);
    if (i % 4 == 0) world.mailbox.cancel(id);
  }
  world.run_until_idle();
  EXPECT_EQ(world.ends.size(), 50u);
  EXPECT_EQ(world.scheduler->load().pages_used, 0);
  const RequestId last = world.submit(300, 9);
  world.turn = Scheduler::Turn::Busy;
  world.run_until_idle();
  EXPECT_EQ(world.tokens[last], world.alone(last, 300, 9));
}

// The row-shift of gate P2a.1 without a device: rows leave first, middle and last while a long prompt goes
// on.
TEST(Scheduler, RowsMoveUpWhenOneLeavesAndOutputsStayTheirOwn) {
  for (const int depth : {1, 2}) {
    World world(
        {.slots = 5, .pages = 100, .max_context = 2000, .max_step_tokens = 64, .max_mixed_tokens = 69}, {},
        depth);
    std::map<RequestId, std::pair<int, int>> asked;
    const auto submit = [&](int prompt, int tokens) {
      asked[world.submit(prompt, tokens)] = {prompt, tokens};
    };
    submit(20, 4), submit(30, 30), submit(40, 9), submit(50, 13);
    submit(1500, 20);
    for (int i = 0; i < 200 && world.ends.size() < 6; ++i) {
      (void)world.tick();
      if (i == 12) submit(25, 7);
    }
    world.run_until_idle();
    for (const auto& [id, what] : asked)
      EXPECT_EQ(world.tokens[id], world.alone(id, what.first, what.second));
  }
}

TEST(Scheduler, RunAheadSendsTheNextStepBeforeTheLastIsAnswered) {
  World world({}, {}, 2);
  world.submit(10, 3);
  EXPECT_EQ(world.tick(), (Log{"step 1p"}));  // nothing is read yet
  EXPECT_EQ(world.tick(), (Log{"step 1d", "token 1"}));
  EXPECT_TRUE(world.steps.back().rows[0].ids.empty());  // LastSampled
  EXPECT_EQ(world.tick(), (Log{"step 1d", "token 1"}));
  EXPECT_EQ(world.tick(), (Log{}));  // the last step is read
  EXPECT_EQ(world.tick(), (Log{"drop 1+", "token 1", "end 1 Length"}));
}

// proves R2.6: the row that ran for nothing is run on every rank and thrown away; its drop waits for it
TEST(Scheduler, RunAheadThrowsAwayTheRowAfterAnEndId) {
  const std::vector<TokenId> alone = World::alone(RequestId{1}, 10, 9);
  World world({}, {}, 2);
  const RequestId id = world.submit(10, 9, {alone[1]});
  world.run_until_idle();
  EXPECT_EQ(world.tokens[id], (std::vector<TokenId>{alone[0], alone[1]}));
  EXPECT_EQ(world.ends[id].reason, EndReason::EndId);
  EXPECT_EQ(world.executor->seen().decode_rows, 2u);
}

TEST(Scheduler, StopEndsEverybodyAndThenTheLoop) {
  World world({.slots = 1, .pages = 4, .max_context = 256, .max_step_tokens = 64, .max_mixed_tokens = 64});
  world.submit(10, 50);
  world.submit(10, 50);
  (void)world.tick();
  world.mailbox.stop();
  EXPECT_EQ(world.tick(), (Log{"drop 2- 1+", "end 2 Cancelled", "end 1 Cancelled"}));
  EXPECT_EQ(world.turn, Scheduler::Turn::Ended);
  EXPECT_FALSE(world.scheduler->failure());
}

}  // namespace
}  // namespace tandem::scheduler
