#include "cli/soak/same.h"

#include <gtest/gtest.h>

#include "ops/philox.h"

namespace tandem::cli::soak {
namespace {

engine::TokenLogprob token(TokenId id, float logprob, std::vector<std::pair<TokenId, float>> top = {}) { return {id, logprob, std::move(top)}; }

engine::Finish length(int tokens) { return {.reason = engine::FinishReason::Length, .usage = {.prompt_tokens = 2, .completion_tokens = tokens}}; }

engine::Request greedy() {
  engine::Request request;
  request.prompt = {1, 2};
  request.sampling.temperature = 0.0f;
  return request;
}

const Answer kAlone{{token(5, -0.5f, {{5, -0.5f}, {6, -0.9f}}), token(7, -1.00f, {{7, -1.00f}, {8, -1.03f}, {9, -2.0f}})}, length(2)};

TEST(Same, EqualIdsAreTheSameAndTheirDistancesAreSummed) {
  const Answer got{{token(5, -0.52f), token(7, -0.99f)}, length(2)};
  const Verdict verdict = judge(greedy(), got, kAlone, 0.05);
  EXPECT_TRUE(verdict.same);
  EXPECT_FALSE(verdict.differs);
  EXPECT_EQ(verdict.tokens, 2);
  EXPECT_NEAR(verdict.distance, 0.03, 1e-6);
  EXPECT_NEAR(verdict.largest, 0.02, 1e-6);
}

TEST(Same, AFirstDifferenceIsAllowedOnlyBetweenNearTies) {
  const Verdict near = judge(greedy(), {{token(5, -0.5f), token(8, -1.01f)}, length(2)}, kAlone, 0.05);
  EXPECT_TRUE(near.same);
  EXPECT_TRUE(near.differs);
  EXPECT_NEAR(near.gap, 0.03, 1e-6);
  EXPECT_FALSE(judge(greedy(), {{token(5, -0.5f), token(9, -1.0f)}, length(2)}, kAlone, 0.05).same);
  EXPECT_FALSE(judge(greedy(), {{token(6, -0.5f), token(7, -1.0f)}, length(2)}, kAlone, 0.05).same);
  EXPECT_FALSE(judge(greedy(), {{token(5, -0.5f), token(99, -1.0f)}, length(2)}, kAlone, 0.05).same) << "not in the list at all";
}

TEST(Same, TheEndCountsUnlessTheRequestWasCancelled) {
  EXPECT_FALSE(judge(greedy(), {{token(5, -0.5f)}, length(1)}, kAlone, 0.05).same);
  EXPECT_TRUE(judge(greedy(), {{token(5, -0.5f)}, std::nullopt}, kAlone, 0.05).same);
  engine::Finish stop = length(2);
  stop.reason = engine::FinishReason::Stop;
  EXPECT_FALSE(judge(greedy(), {{token(5, -0.5f), token(7, -1.0f)}, stop}, kAlone, 0.05).same);
  Answer longer = kAlone;
  longer.tokens.push_back(token(3, -1.0f));
  longer.finish.reset();
  EXPECT_FALSE(judge(greedy(), longer, kAlone, 0.05).same) << "a cancelled request gave more than there is";
}

TEST(Same, ASampledRequestIsJudgedByWhatTheSamplerCompared) {
  engine::Request request = greedy();
  request.sampling.temperature = 0.5f;
  request.sampling.seed = 11;
  const auto noise = [&](std::int64_t place, TokenId id) { return ops::gumbel_noise(11, 2 + place, id); };
  // Two ids whose places in the race are `gap` apart, though their logprobs are not.
  for (const float gap : {0.09f, 0.11f}) {
    const float other = -1.0f + noise(0, 5) - noise(0, 6) - gap;
    const Answer alone{{token(5, -1.0f, {{5, -1.0f}, {6, other}})}, length(1)};
    const Verdict verdict = judge(request, {{token(6, other)}, length(1)}, alone, 0.05);  // 0.05 / 0.5 = 0.1
    EXPECT_EQ(verdict.same, gap < 0.1f) << verdict.why;
    EXPECT_NEAR(verdict.gap, gap, 1e-4);
  }
}

}  // namespace
}  // namespace tandem::cli::soak
