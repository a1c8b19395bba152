#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/test_world.h"

namespace tandem::engine {
namespace {

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
  EXPECT_EQ(field_of([](Request& r) { r.sampling.temperature = 2.5f; }), "temperature");  // as over HTTP
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_p = 0.0f; }), "top_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_p = 1.5f; }), "min_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_k = -1; }), "top_k");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.repetition_penalty = 0.0f; }), "repetition_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.repetition_penalty = 0.01f; }), "accepted");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.presence_penalty = 2.01f; }), "presence_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.frequency_penalty = -2.01f; }), "frequency_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_tokens = 5, r.max_tokens = 4; }), "min_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.logit_bias = {{-1, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.logit_bias = {{1, 1.0f}, {1, 2.0f}}; }), "logit_bias");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.logit_bias = {{1, 101.0f}}; }), "logit_bias");
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

}  // namespace
}  // namespace tandem::engine
