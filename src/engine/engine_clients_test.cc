#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/test_world.h"

namespace tandem::engine {
namespace {

// proves R4.6
TEST(Engine, CancellationInFlightGivesOneFailureAndNothingAfter) {
  World world("", {}, {});
  world.fake->hold();
  auto sink = std::make_shared<RecordingSink>();
  Request request = greeting();
  request.ignore_eos = true;
  const RequestId id = world.engine->submit(request, sink).value();
  world.fake->wait_until_held();
  world.engine->cancel(id);
  world.engine->cancel(id);
  world.fake->release();
  const auto got = sink->wait();
  ASSERT_TRUE(got.failure);
  EXPECT_EQ(got.failure->kind, ErrorKind::Cancelled);
  EXPECT_TRUE(got.deltas.empty());
  world.engine->cancel(id);
  ASSERT_TRUE(world.engine->stop());
  EXPECT_EQ(sink->now().ends, 1);
  EXPECT_EQ(world.engine->load().requests_cancelled, 1u);
  EXPECT_EQ(world.engine->load().slots_used, 0);
}

TEST(Engine, DrainRefusesNewRequestsAndFinishesOldOnes) {
  World world("hello world");
  world.fake->hold();
  auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(world.engine->submit(greeting(), sink));
  world.fake->wait_until_held();
  world.engine->drain();
  EXPECT_EQ(world.engine->state(), State::Draining);
  const auto refused = world.run(greeting());
  ASSERT_TRUE(refused.failure);
  EXPECT_EQ(refused.failure->kind, ErrorKind::Cancelled);
  world.fake->release();
  EXPECT_EQ(sink->wait().text(), "hello world");
  ASSERT_TRUE(world.engine->stop());
  EXPECT_EQ(world.engine->state(), State::Stopped);
}

TEST(Engine, StopEndsWhatIsRunningAndWaitingWithOneErrorEach) {
  World world;
  world.fake->hold();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 20; ++i) {
    Request request = greeting();
    request.ignore_eos = true;
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(world.engine->submit(request, sinks.back()));
  }
  world.fake->wait_until_held();
  std::thread stopper([&] { EXPECT_TRUE(world.engine->stop()); });
  world.fake->release();
  stopper.join();
  for (const auto& sink : sinks) EXPECT_EQ(sink->now().ends, 1);
  EXPECT_TRUE(world.fake->seen().shut_down);
}

// Clients that leave while they wait cost nothing: their prompts are never run.
TEST(Engine, AStormOfDisconnectsLeavesNothingBehind) {
  World world;
  world.fake->hold();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  std::vector<RequestId> ids;
  for (int i = 0; i < 1000; ++i) {
    Request request{.prompt = std::vector<TokenId>(512, 65), .max_tokens = 100, .ignore_eos = true};
    sinks.push_back(std::make_shared<RecordingSink>());
    ids.push_back(world.engine->submit(request, sinks.back()).value());
  }
  world.fake->wait_until_held();
  for (const RequestId id : ids) world.engine->cancel(id);
  world.fake->release();
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().failure->kind, ErrorKind::Cancelled);
  EXPECT_EQ(world.run({.prompt = {65, 66}, .max_tokens = 5, .ignore_eos = true}).tokens().size(), 5u);
  ASSERT_TRUE(world.engine->stop());
  EXPECT_LE(world.fake->seen().prefill_tokens, 512u + 2u);  // the step that was held, and the last request
  EXPECT_EQ(world.engine->load().pages_used, 0);
  EXPECT_EQ(world.engine->load().requests_cancelled, 1000u);
}

TEST(Engine, FourThousandOpenStreamsEachGetAllTheirTokens) {
  FakeExecutor::Options options;
  options.capacity.slots = 64;
  World world("", {}, options);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 4000; ++i) {
    Request request{.prompt = {i % 256, i / 256}, .max_tokens = 1 + i % 7, .ignore_eos = true};
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(world.engine->submit(request, sinks.back()));
  }
  for (int i = 0; i < 4000; ++i)
    EXPECT_EQ(std::ssize(sinks[static_cast<std::size_t>(i)]->wait().tokens()), 1 + i % 7);
}

TEST(Engine, ASinkMayCancelFromItsOwnDelta) {
  struct Impatient final : EventSink {
    explicit Impatient(World& world_in) : world(world_in) {}
    void on_delta(RequestId request, Delta) override {
      deltas += 1;
      world.engine->cancel(request);
    }
    void on_finish(RequestId, Finish) override { ended.set_value(ErrorKind::Invalid); }
    void on_failure(RequestId, Error error) override { ended.set_value(error.kind); }
    World& world;
    std::promise<ErrorKind> ended;
    int deltas = 0;
  };
  World world;
  auto sink = std::make_shared<Impatient>(world);
  ASSERT_TRUE(world.engine->submit({.prompt = {65}, .max_tokens = 2000, .ignore_eos = true}, sink));
  EXPECT_EQ(sink->ended.get_future().get(), ErrorKind::Cancelled);
  ASSERT_TRUE(world.engine->stop());
  EXPECT_LT(sink->deltas, 2000);
}

TEST(Engine, ManyClientsOnManyThreadsEachGetTheirOwnSoloAnswer) {
  FakeExecutor::Options options;
  options.capacity.slots = 5;
  options.capacity.pages = 30;
  options.shuffle = 7;
  options.max_in_flight = 2;
  EngineOptions engine_options;
  engine_options.steps_in_flight = 2;
  World world("", engine_options, options);
  const auto client = [&](int thread) {
    for (int i = 0; i < 25; ++i) {
      Request request;
      for (int j = 0; j < 5 + 37 * ((thread + i) % 4); ++j)
        request.prompt.push_back((thread * 31 + i * 7 + j) % 128);
      request.sampling.seed = static_cast<std::uint64_t>(thread * 1000 + i);
      request.max_tokens = 1 + (i * 5) % 23;
      request.ignore_eos = true;
      const auto expected =
          FakeExecutor::solo(request.prompt, request.sampling, *request.max_tokens, tokenizer().vocab_size());
      const std::string text = tokenizer().decode(expected, true);
      auto sink = std::make_shared<RecordingSink>();
      const auto id = world.engine->submit(request, sink);
      ASSERT_TRUE(id);
      if (i % 5 == 4) {
        sink->wait_for_deltas(1);
        world.engine->cancel(*id);
        EXPECT_EQ(sink->wait().ends, 1);
        continue;
      }
      const auto got = sink->wait();
      EXPECT_EQ(got.tokens(), expected);
      EXPECT_EQ(got.text(), text);
      EXPECT_EQ(got.ends, 1);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back(client, i);
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(world.engine->stop());
  EXPECT_EQ(world.engine->load().pages_used, 0);
  EXPECT_EQ(world.engine->load().slots_used, 0);
}

}  // namespace
}  // namespace tandem::engine
