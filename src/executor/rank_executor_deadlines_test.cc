#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "executor/test_protocol.h"

namespace tandem::executor {
namespace {

// proves R3.2 and R2.2
TEST_P(Protocol, ALostCommandEndsAtTheDeadlineAndNamesWhoWaitsWhere) {
  ASSERT_NO_FATAL_FAILURE(start({.step = milliseconds(50)}));
  hooks_->on_deliver = [&](RankId rank, const Command&) {
    return rank == last() ? Hooks::Delivery::Lost : Hooks::Delivery::Normal;
  };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(step.error().message, HasSubstr("RunStep number 6 is not answered after 50 ms"));
  EXPECT_THAT(step.error().message,
              HasSubstr("rank " + std::to_string(world() - 1) + " waits for a command after number 5"));
  if (world() > 1) {
    EXPECT_THAT(step.error().message,
                HasSubstr("rank 0 runs RunStep number 6, in all_reduce number 2 (100 elements)"));
  }
  expect_poisoned("is not answered");
}

// proves R2.2
TEST_P(Protocol, AMissingReplyEndsAtTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(start({.step = milliseconds(50)}));
  hooks_->on_send = [&](RankId rank, Reply reply) { return rank == last() ? none() : one(std::move(reply)); };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
  expect_poisoned("is not answered");
}

// proves R3.4
TEST_P(Protocol, AnExceptionOnARankIsThatRanksError) {
  for (const bool unknown : {false, true}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());
    hooks_->on_before = [&](RankId rank, const Command&) -> Result<void> {
      if (rank == last() && unknown) throw 7;
      if (rank == last()) throw std::runtime_error("out of cheese");
      return {};
    };
    const auto step = run_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Device);
    EXPECT_THAT(step.error().message,
                HasSubstr("[rank " + std::to_string(world() - 1) + "] RunStep number 6: exception"));
    expect_poisoned(unknown ? "unknown type" : "out of cheese");
  }
}

// proves R3.2: a rank that neither answers nor ends is named, and the process ends with a status
TEST_P(Protocol, AStuckRankEndsTheProcess) {
  const auto release = std::make_shared<Event>();
  const auto hooks = hooks_;
  const RankId stuck = last();
  std::atomic<int> status{0};
  RankExecutorOptions options = fake_options(fakes_, hooks_);
  options.deadlines = {.step = milliseconds(30), .abort_grace = milliseconds(30)};
  options.exit_process = [&](int code) { status.store(code); };
  auto started = RankExecutor::start(std::move(options));
  ASSERT_TRUE(started.has_value());
  executor_ = std::move(*started);
  hooks->on_before = [release, stuck](RankId rank, const Command&) -> Result<void> {
    if (rank == stuck) release->wait();
    return {};
  };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
  EXPECT_EQ(status.load(), 0);  // clients are told first; shutdown() follows
  const auto ended = executor_->shutdown();
  EXPECT_EQ(status.load(), kExitStuckRank);
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(ended.error().message,
              HasSubstr("ranks do not end; rank " + std::to_string(stuck.value) + " runs RunStep number 6"));
  executor_.reset();
  release->set();
  while (fakes_->models_alive.load() > 0) std::this_thread::yield();
}

// proves R3.2: once the process is to end, a step that hangs is waited for no longer than the join deadline
TEST_P(Protocol, AStepThatHangsDelaysTheStopByTheJoinDeadlineOnly) {
  for (const bool before : {true, false}) {  // the stop comes before the wait, or while it lasts
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    const auto release = std::make_shared<Event>();
    const auto runs = std::make_shared<Event>();
    const RankId stuck = last();
    std::atomic<int> status{0};
    RankExecutorOptions options = fake_options(fakes_, hooks_);
    options.deadlines = {.step = std::chrono::hours(1), .drop = std::chrono::hours(1), .join = milliseconds(30), .abort_grace = milliseconds(30)};
    options.exit_process = [&](int code) { status.store(code); };
    auto started = RankExecutor::start(std::move(options));
    ASSERT_TRUE(started.has_value());
    executor_ = std::move(*started);
    hooks_->on_before = [release, runs, stuck](RankId rank, const Command&) -> Result<void> {
      if (rank != stuck) return {};
      runs->set();
      release->wait();
      return {};
    };
    if (before) executor_->end_soon();
    std::thread stop([&] {
      runs->wait();
      executor_->end_soon();
    });
    const auto step = run_step();
    stop.join();
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
    EXPECT_THAT(step.error().message, HasSubstr("RunStep number 6 is not answered within 30 ms of the stop"));
    EXPECT_THAT(step.error().message, HasSubstr("rank " + std::to_string(stuck.value) + " runs RunStep number 6"));
    EXPECT_FALSE(executor_->shutdown().has_value());
    EXPECT_EQ(status.load(), kExitStuckRank);
    executor_.reset();
    release->set();
    while (fakes_->models_alive.load() > 0) std::this_thread::yield();
  }
}

// The stop takes nothing from a replica that is well: its Shutdown has the join deadline for itself.
TEST_P(Protocol, AStopOfAHealthyReplicaIsOrderly) {
  RankExecutorOptions options = fake_options(fakes_, hooks_);
  options.deadlines.join = std::chrono::minutes(1);
  auto started = RankExecutor::start(std::move(options));
  ASSERT_TRUE(started.has_value());
  executor_ = std::move(*started);
  executor_->end_soon();
  EXPECT_TRUE(run_step().has_value());
  const auto ended = executor_->shutdown();
  EXPECT_TRUE(ended.has_value()) << ended.error().message;
}

// proves R3.5: the process is gone in bounded time even if nobody calls shutdown()
TEST_P(Protocol, TheWatchdogEndsAProcessThatLingers) {
  Event ended;
  RankExecutorOptions options = fake_options(fakes_, hooks_);
  options.deadlines.process_exit = milliseconds(20);
  options.exit_process = [&](int code) {
    EXPECT_EQ(code, kExitStuckRank);
    ended.set();
  };
  auto started = RankExecutor::start(std::move(options));
  ASSERT_TRUE(started.has_value());
  executor_ = std::move(*started);
  hooks_->on_before = [](RankId, const Command&) -> Result<void> { return fail(ErrorKind::Device, "gone"); };
  EXPECT_FALSE(run_step().has_value());
  ended.wait();
  expect_poisoned("gone");
}

}  // namespace
}  // namespace tandem::executor
