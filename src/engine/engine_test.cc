#include <gtest/gtest.h>

#include <algorithm>

#include "engine/test_world.h"

namespace tandem::engine {
namespace {

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

}  // namespace
}  // namespace tandem::engine
