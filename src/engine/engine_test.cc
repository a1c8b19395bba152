#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <memory>
#include <thread>

#include "engine/make_engine.h"
#include "engine/test_sink.h"
#include "executor/fake_ranks.h"
#include "scheduler/fake_executor.h"
#include "text/tokenizer_fixture.h"

namespace tandem::engine {
namespace {

using scheduler::FakeExecutor;

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer kTokenizer =
      text::Tokenizer::parse(text::fixture::tokenizer_json(), text::fixture::tokenizer_config_json()).value();
  return kTokenizer;
}

// An engine whose model writes what `says` returns for a request, and then <|im_end|>.
struct World {
  explicit World(std::string says = "", EngineOptions engine_options = {},
                 FakeExecutor::Options options = {}) {
    options.capacity.vocab = tokenizer().vocab_size();
    if (!says.empty()) {
      ids = tokenizer().encode(says, text::SpecialTokens::Parse);
      ids.push_back(*tokenizer().eos());
      options.choose = [this](RequestId, std::int32_t index, TokenId) {
        return ids[std::min(static_cast<std::size_t>(index), ids.size() - 1)];
      };
    }
    auto owned = std::make_unique<FakeExecutor>(options);
    fake = owned.get();
    const TokenId end = *tokenizer().eos();
    engine = make_engine(engine_options, std::move(owned), tokenizer(), std::span(&end, 1)).value();
  }
  RecordingSink::Record run(Request request) {
    auto sink = std::make_shared<RecordingSink>();
    auto id = engine->submit(std::move(request), sink);
    if (!id) return {.failure = id.error()};
    return sink->wait();
  }

  std::vector<TokenId> ids;
  FakeExecutor* fake = nullptr;
  std::unique_ptr<Engine> engine;
};

Request greeting() { return {.prompt = tokenizer().encode("say hello", text::SpecialTokens::Parse)}; }

TEST(Engine, TextEndsAtTheEndIdWhichCountsAndIsNotShown) {
  World world("hello world");
  const auto got = world.run(greeting());
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.text(), "hello world");
  EXPECT_EQ(got.finish->reason, FinishReason::Stop);
  EXPECT_EQ(got.finish->stop_token, tokenizer().eos());
  EXPECT_EQ(got.finish->usage.prompt_tokens, std::ssize(greeting().prompt));
  EXPECT_EQ(got.finish->usage.completion_tokens, std::ssize(world.ids));
  EXPECT_EQ(got.tokens(), world.ids);
}

TEST(Engine, LengthEndsWithExactlyMaxTokens) {
  World world("hello world and so on");
  Request request = greeting();
  request.max_tokens = 3;
  const auto got = world.run(request);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.finish->reason, FinishReason::Length);
  EXPECT_EQ(got.finish->usage.completion_tokens, 3);
  EXPECT_EQ(got.tokens().size(), 3u);
}

TEST(Engine, IgnoreEosGoesOnToTheLength) {
  World world("hello");
  Request request = greeting();
  request.max_tokens = 9;
  request.ignore_eos = true;
  const auto got = world.run(request);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.finish->reason, FinishReason::Length);
  EXPECT_EQ(got.finish->usage.completion_tokens, 9);
  EXPECT_EQ(got.text(), "hello");
}

TEST(Engine, MinTokensKeepsTheEndIdAway) {
  World world("hello");
  Request request = greeting();
  request.max_tokens = 12;
  request.sampling.min_tokens = 8;
  const auto got = world.run(request);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.finish->reason, FinishReason::Stop);
  EXPECT_EQ(got.finish->usage.completion_tokens, 9);
  const auto tokens = got.tokens();
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), *tokenizer().eos()), 1);
}

// A stop string beats the later end id, and its finish waits for the drop.
TEST(Engine, AStopStringEndsTheRequestAndLaterTokensAreDiscarded) {
  for (const int steps : {1, 2}) {
    FakeExecutor::Options options;
    options.max_in_flight = 2;
    EngineOptions engine_options;
    engine_options.steps_in_flight = steps;
    World world("one, two, three, four, five, six, seven", engine_options, options);
    Request request = greeting();
    request.stop = {"four, f"};
    const auto got = world.run(request);
    ASSERT_TRUE(got.finish);
    EXPECT_EQ(got.text(), "one, two, three, ");
    EXPECT_EQ(got.finish->reason, FinishReason::Stop);
    EXPECT_EQ(got.finish->stop_text, "four, f");
    EXPECT_EQ(std::ssize(got.tokens()), got.finish->usage.completion_tokens);
    EXPECT_EQ(tokenizer().decode(got.tokens(), true), "one, two, three, four, f");
    ASSERT_TRUE(world.engine->stop());
    EXPECT_EQ(world.engine->load().slots_used, 0);
  }
}

TEST(Engine, LogprobsAreAsManyAsTokens) {
  World world("h\xC3\xA9llo \xE2\x82\xAC");
  Request request = greeting();
  request.logprobs = 3;
  request.prompt_logprobs = 2;
  const auto got = world.run(request);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.text(), "h\xC3\xA9llo \xE2\x82\xAC");
  EXPECT_EQ(std::ssize(got.logprobs()), got.finish->usage.completion_tokens);
  for (const TokenLogprob& token : got.logprobs()) EXPECT_EQ(token.top.size(), 3u);
  for (const Delta& delta : got.deltas) EXPECT_EQ(delta.logprobs.size(), delta.tokens.size());
  EXPECT_EQ(got.deltas.front().prompt_logprobs.size(), request.prompt.size() - 1);
}

TEST(Engine, RefusalsNameTheFieldAndTheLimit) {
  World world("hello");
  const auto field_of = [&](auto change) {
    Request request = greeting();
    change(request);
    const auto got = world.run(request);
    return got.failure ? got.failure->field : "accepted";
  };
  EXPECT_EQ(field_of([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt = {tokenizer().vocab_size()}; }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt = {-1}; }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt.assign(2048, 1); }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt.assign(2047, 1); }), "accepted");
  EXPECT_EQ(field_of([](Request& r) { r.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.max_tokens = 2147483647; }), "max_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.temperature = std::nanf(""); }), "temperature");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_p = 0.0f; }), "top_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_p = 1.5f; }), "min_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_k = -1; }), "top_k");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.repetition_penalty = 0.0f; }), "repetition_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.presence_penalty = 2.01f; }), "presence_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.frequency_penalty = -2.01f; }), "frequency_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_tokens = 5, r.max_tokens = 4; }), "min_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.logit_bias = {{-1, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.logit_bias = {{1, 1.0f}, {1, 2.0f}}; }), "logit_bias");
  EXPECT_EQ(field_of([](Request& r) { r.stop_token_ids = {100000}; }), "stop_token_ids");
  EXPECT_EQ(field_of([](Request& r) { r.logprobs = 21; }), "logprobs");
  EXPECT_EQ(field_of([](Request& r) { r.prompt_logprobs = 21; }), "prompt_logprobs");
  EXPECT_EQ(field_of([](Request& r) { r.stop = {""}; }), "stop");
}

// proves R5.3
TEST(Engine, ARequestThatThePoolCanNeverHoldIsRefusedWithTheLimit) {
  FakeExecutor::Options options;
  options.capacity.pages = 4;  // 256 tokens, and the last one is not kept
  World world("", {}, options);
  EXPECT_EQ(world.engine->max_context(), 257);
  Request request{.prompt = std::vector<TokenId>(248, 1), .max_tokens = 64, .ignore_eos = true};
  const auto refused = world.run(request);
  ASSERT_TRUE(refused.failure);
  EXPECT_EQ(refused.failure->kind, ErrorKind::Capacity);
  EXPECT_NE(refused.failure->message.find("4 (256 tokens)"), std::string::npos) << refused.failure->message;
  for (const int max_tokens : {8, 9}) {
    request.max_tokens = max_tokens;
    const auto got = world.run(request);
    ASSERT_TRUE(got.finish);
    EXPECT_EQ(got.finish->usage.completion_tokens, max_tokens);
  }
  request.max_tokens = {};
  EXPECT_EQ(world.run(request).finish->usage.completion_tokens, 9);  // context - prompt
}

TEST(Engine, OptionsThatCannotServeAreRefusedByNameBeforeAnyRankExists) {
  const rank::Capacity capacity{.slots = 64,
                                .pages = 100,
                                .max_context = 4096,
                                .max_step_tokens = 8192,
                                .max_mixed_tokens = 512,
                                .vocab = 1000};
  const auto field = [&](EngineOptions options) {
    const auto checked = check_options(options, capacity);
    return checked ? std::string("accepted") : checked.error().field;
  };
  EXPECT_EQ(field({}), "accepted");
  EXPECT_EQ(field({.max_requests = 1000}), "accepted");  // as many as there are slots
  EXPECT_EQ(field({.max_mixed_tokens = 126}), "max-mixed-tokens");
  EXPECT_EQ(field({.max_mixed_tokens = 127}), "accepted");
  EXPECT_EQ(field({.max_mixed_tokens = 64, .mixed = false}), "accepted");
  EXPECT_EQ(field({.max_step_tokens = 10}), "max-step-tokens");
  EXPECT_EQ(field({.default_max_tokens = 0}), "default-max-tokens");
  EXPECT_EQ(field({.max_waiting = 0}), "max-waiting");
  EXPECT_EQ(field({.idle_ping = std::chrono::milliseconds(0)}), "idle-ping");
  const TokenId outside = 1000;
  EXPECT_FALSE(make_engine({}, std::make_unique<FakeExecutor>(FakeExecutor::Options{}), tokenizer(),
                           std::span(&outside, 1)));
  EXPECT_FALSE(make_engine({.steps_in_flight = 2}, std::make_unique<FakeExecutor>(FakeExecutor::Options{}),
                           tokenizer(), {}));
}

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

TEST(Engine, AFullQueueSaysOverloaded) {
  EngineOptions options;
  options.max_waiting = 3;
  FakeExecutor::Options fake;
  fake.capacity.slots = 1;
  World world("", options, fake);
  world.fake->hold();
  const auto submit = [&] { return world.engine->submit(greeting(), std::make_shared<RecordingSink>()); };
  ASSERT_TRUE(submit());
  world.fake->wait_until_held();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit());
  const auto refused = submit();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Overloaded);
  world.fake->release();
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
