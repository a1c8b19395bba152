#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/test_world.h"
#include "executor/fake_ranks.h"

namespace tandem::engine {
namespace {

// proves R3.3 R3.5
TEST(Engine, AFatalFailureTellsEverybodyOnceAndThenTheProcess) {
  FakeExecutor::Options options;
  options.fault = [](std::string_view operation, std::uint64_t number) -> Result<void> {
    if (operation != "step" || number < 20) return {};
    return fail(ErrorKind::Device, "rank 0 lost its device");
  };
  EngineOptions engine_options;
  std::promise<Error> told;
  engine_options.on_failed = [&](const Error& error) { told.set_value(error); };
  World world("", engine_options, options);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 30; ++i) {
    Request request = greeting();
    request.ignore_eos = true;
    request.max_tokens = 200;
    auto sink = std::make_shared<RecordingSink>();
    if (world.engine->submit(request, sink)) sinks.push_back(sink);
  }
  EXPECT_NE(told.get_future().get().message.find("lost its device"), std::string::npos);
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->now().failure);
    EXPECT_EQ(sink->now().failure->kind, ErrorKind::Poisoned);
    EXPECT_EQ(sink->now().ends, 1);
  }
  EXPECT_EQ(world.engine->state(), State::Failed);
  EXPECT_EQ(world.engine->load().running, 0);
  const auto late = world.run(greeting());
  ASSERT_TRUE(late.failure);
  EXPECT_EQ(late.failure->kind, ErrorKind::Poisoned);
  EXPECT_FALSE(world.engine->stop());
  EXPECT_EQ(world.engine->state(), State::Failed);
}

// proves R3.1, R3.5 with no request in flight
TEST(Engine, AnIdleReplicaWhoseRankHasDiedFails) {
  FakeExecutor::Options options;
  options.fault = [](std::string_view operation, std::uint64_t) -> Result<void> {
    if (operation != "ping") return {};
    return fail(ErrorKind::Device, "rank 0 lost its device");
  };
  EngineOptions engine_options{.idle_ping = std::chrono::milliseconds(1)};
  std::promise<Error> told;
  engine_options.on_failed = [&](const Error& error) { told.set_value(error); };
  World world("", engine_options, options);
  EXPECT_EQ(told.get_future().get().message, "rank 0 lost its device");
  EXPECT_EQ(world.engine->state(), State::Failed);
  EXPECT_EQ(world.engine->failure()->message, "rank 0 lost its device");
  EXPECT_EQ(world.run(greeting()).failure->kind, ErrorKind::Poisoned);
}

// proves R3.2, R3.5 with no request in flight, over the real controller: a rank that hangs
TEST(Engine, AnIdleReplicaWhoseRankHangsFailsAtTheDeadlineAndEndsTheProcess) {
  namespace fakes = executor::testing;
  const auto world = std::make_shared<fakes::FakeWorld>(2);
  const auto hooks = std::make_shared<fakes::Hooks>();
  const auto release = std::make_shared<fakes::Event>();
  hooks->on_before = [release](RankId rank, const rank::Command& command) -> Result<void> {
    if (rank.value == 1 && std::holds_alternative<rank::PingCommand>(command.body)) release->wait();
    return {};
  };
  std::atomic<int> status{0};
  executor::RankExecutorOptions ranks = fakes::fake_options(world, hooks);
  ranks.deadlines.drop = ranks.deadlines.abort_grace = std::chrono::milliseconds(30);
  ranks.exit_process = [&](int code) { status.store(code); };
  EngineOptions options{.idle_ping = std::chrono::milliseconds(1)};
  std::promise<Error> told;
  options.on_failed = [&](const Error& error) { told.set_value(error); };
  const auto engine = make_engine(options, executor::RankExecutor::start(std::move(ranks)).value(), tokenizer(), {}).value();
  const std::string why = told.get_future().get().message;
  EXPECT_NE(why.find("Ping number 6 is not answered after 30 ms; rank 1 runs Ping number 6"), std::string::npos) << why;
  EXPECT_EQ(engine->state(), State::Failed);
  EXPECT_EQ(status.load(), 0);  // clients are told first
  EXPECT_FALSE(engine->stop());
  EXPECT_EQ(status.load(), executor::kExitStuckRank);
  release->set();
  while (world->models_alive.load() > 0) std::this_thread::yield();
}

// Pings go on for as long as nothing happens, and make no work wait.
TEST(Engine, AnIdleReplicaServesBetweenPings) {
  std::atomic<int> pings{0};
  FakeExecutor::Options options;
  options.fault = [&](std::string_view operation, std::uint64_t) -> Result<void> {
    pings += operation == "ping";
    return {};
  };
  World world("hello world", {.idle_ping = std::chrono::milliseconds(1)}, options);
  for (int round = 1; round <= 3; ++round) {
    while (pings.load() < 10 * round) std::this_thread::yield();
    EXPECT_EQ(world.run(greeting()).text(), "hello world");
  }
  EXPECT_TRUE(world.engine->stop());
}

// proves R3.5: /health is never later than the clients.
TEST(Engine, WhoHearsOfAFatalFailureFindsTheEngineFailedForThatReason) {
  struct LookingSink final : EventSink {
    Engine* engine = nullptr;
    std::promise<std::pair<State, std::optional<Error>>> seen;
    void on_delta(RequestId, Delta) override {}
    void on_finish(RequestId, Finish) override { seen.set_value({engine->state(), engine->failure()}); }
    void on_failure(RequestId, Error) override { seen.set_value({engine->state(), engine->failure()}); }
  };
  FakeExecutor::Options options;
  options.fault = [](std::string_view operation, std::uint64_t number) -> Result<void> {
    if (operation != "step" || number < 5) return {};
    return fail(ErrorKind::Device, "rank 0 lost its device");
  };
  World world("", {}, options);
  auto sink = std::make_shared<LookingSink>();
  sink->engine = world.engine.get();
  Request request = greeting();
  request.ignore_eos = true;
  request.max_tokens = 200;
  ASSERT_TRUE(world.engine->submit(request, sink));
  const auto [state, failure] = sink->seen.get_future().get();
  EXPECT_EQ(state, State::Failed);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "rank 0 lost its device");
}

}  // namespace
}  // namespace tandem::engine
