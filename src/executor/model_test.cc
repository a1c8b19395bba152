#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/test_driver.h"

// The executor over real ranks: one rank, the reference operators, a small made-up model.
namespace tandem::executor {
namespace {

using testing::Asked;
using testing::Driver;
using testing::Got;
using testing::random_prompt;
using testing::small_options;

std::unique_ptr<RankExecutor> start(const ExecutorOptions& options) {
  auto executor = start_executor(options);
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

std::vector<Got> in_fresh_process(const Asked& asked, std::size_t count) {
  const auto executor = start(small_options());
  return Driver(*executor).solo(asked, count);
}

TEST(ModelExecutor, AnswersAPrompt) {
  const auto executor = start(small_options());
  ASSERT_NE(executor, nullptr);
  Driver driver(*executor);
  const std::vector<Got> tokens = driver.solo({.prompt = random_prompt(70, 1)}, 6);
  ASSERT_EQ(tokens.size(), 6u);
  for (const Got& token : tokens) {
    ASSERT_EQ(token.top.size(), 5u);
    EXPECT_EQ(token.top[0].first, token.id);  // greedy
    EXPECT_EQ(token.top[0].second, token.logprob);
    EXPECT_LT(token.logprob, 0.0f);
  }
  EXPECT_TRUE(executor->shutdown().has_value());
}

}  // namespace
}  // namespace tandem::executor
