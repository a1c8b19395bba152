#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "executor/test_protocol.h"

namespace tandem::executor {
namespace {

INSTANTIATE_TEST_SUITE_P(Worlds, Protocol, ::testing::Values(1, 2, 4));
INSTANTIATE_TEST_SUITE_P(Worlds, Ranks, ::testing::Values(2, 4));

// proves R2 and R4.2 where nothing goes wrong
TEST_P(Protocol, RunsStepsDropsAndEnds) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const auto first = run_step(id, 3);
    ASSERT_TRUE(first.has_value()) << first.error().message;
    ASSERT_EQ(first->artifacts.size(), 1u);
    EXPECT_EQ(first->artifacts[0].request, RequestId{id});
    EXPECT_EQ(first->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 64));
    ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(id, 3, 64)}}).has_value());
    ASSERT_TRUE(executor_->wait_step().has_value());
    const rank::Drop drops[] = {{RequestId{id}, rank::Expectation::MustExist},
                                {RequestId{id + 100}, rank::Expectation::MustBeAbsent}};
    ASSERT_TRUE(executor_->drop(drops).has_value());
    ASSERT_TRUE(executor_->ping().has_value());
  }
  EXPECT_EQ(fakes_->steps_begun.load(), 40 * world());
  EXPECT_FALSE(executor_->poisoned().has_value());
  EXPECT_TRUE(executor_->shutdown().has_value());
  EXPECT_EQ(fakes_->models_alive.load(), 0);
  EXPECT_EQ(executor_->submit_step({.rows = {prefill_row(1, 0, 64)}}).error().kind, ErrorKind::Poisoned);
}

// proves R2.1
TEST_P(Protocol, NoRankRunsAStepBeforeAllHaveIt) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::atomic<int> reached{0};
  hooks_->on_before = [&](RankId, const Command&) -> Result<void> {
    reached.fetch_add(1);
    return {};
  };
  hooks_->on_deliver = [&](RankId, const Command&) {
    for (int i = 0; i < 200; ++i) std::this_thread::yield();  // time for a rank to run ahead, if it could
    EXPECT_EQ(reached.load(), 0);
    return Hooks::Delivery::Normal;
  };
  EXPECT_TRUE(run_step().has_value());
  EXPECT_EQ(reached.load(), world());
  hooks_->on_deliver = nullptr;
  executor_.reset();  // while `reached` lives: the ranks' last command comes past the hook, too
}

// proves R2.1
TEST_P(Protocol, AFailedEnqueueCancelsTheCommandOnEveryRank) {
  ASSERT_NO_FATAL_FAILURE(start());
  hooks_->on_deliver = [&](RankId rank, const Command&) {
    return rank == last() ? Hooks::Delivery::Refused : Hooks::Delivery::Normal;
  };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Protocol);
  EXPECT_THAT(step.error().message, HasSubstr("does not take RunStep number"));
  expect_poisoned("does not take RunStep");
  EXPECT_EQ(fakes_->steps_begun.load(), 0);
}

// proves R2.5: what the controller can see is refused, and does no harm
TEST_P(Protocol, APlanErrorLeavesTheExecutorHealthy) {
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(executor_->submit_step({}).error().kind, ErrorKind::Invalid);
  EXPECT_EQ(executor_->submit_step({.rows = {prefill_row(1, 0, 64), prefill_row(1, 1, 64)}}).error().kind,
            ErrorKind::Invalid);
  EXPECT_EQ(executor_->wait_step().error().kind, ErrorKind::Invalid);
  EXPECT_TRUE(executor_->drop({}).has_value());
  EXPECT_FALSE(executor_->poisoned().has_value());
  EXPECT_TRUE(run_step().has_value());
  ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(1, 0, 64)}}).has_value());
  EXPECT_EQ(executor_->submit_step({.rows = {decode_row(1, 0, 65)}}).error().kind, ErrorKind::Invalid);
  EXPECT_TRUE(executor_->wait_step().has_value());
  EXPECT_TRUE(executor_->shutdown().has_value());
}

// Two steps in flight are answered in their order, whichever rank is ahead.
TEST_P(Protocol, TwoStepsMayBeInFlight) {
  ASSERT_NO_FATAL_FAILURE(start({}, 2));
  for (std::uint64_t id = 1; id <= 30; ++id) {
    ASSERT_TRUE(executor_->submit_step({.rows = {prefill_row(id, 0, 64)}}).has_value());
    ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(id, 0, 64)}}).has_value());
    EXPECT_EQ(executor_->submit_step({.rows = {decode_row(id, 0, 65)}}).error().kind, ErrorKind::Invalid);
    const auto first = executor_->wait_step();
    ASSERT_TRUE(first.has_value()) << first.error().message;
    EXPECT_EQ(first->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 64));
    ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(id, 0, 65)}}).has_value());
    // A drop of another request goes out while two steps are under way.
    const rank::Drop absent{RequestId{1000 + id}, rank::Expectation::MustBeAbsent};
    ASSERT_TRUE(executor_->drop({&absent, 1}).has_value());
    EXPECT_EQ(executor_->wait_step()->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 65));
    EXPECT_EQ(executor_->wait_step()->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 66));
  }
  ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(1, 0, 65)}}).has_value());
  EXPECT_TRUE(executor_->shutdown().has_value());  // waits for the step first
}

// proves R3.1 with a failure while two steps are in flight
TEST_P(Ranks, AFailureWithTwoStepsInFlightEndsBoth) {
  ASSERT_NO_FATAL_FAILURE(start({}, 2));
  hooks_->on_before = [&](RankId rank, const Command& command) -> Result<void> {
    if (rank == last() && command.number == 7) return fail(ErrorKind::Device, "device lost");
    return {};
  };
  ASSERT_TRUE(executor_->submit_step({.rows = {prefill_row(1, 0, 64)}}).has_value());
  ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(1, 0, 64)}}).has_value());
  while (executor_->wait_step().has_value()) {
  }
  expect_poisoned("RunStep number 7: device lost");
}

}  // namespace
}  // namespace tandem::executor
