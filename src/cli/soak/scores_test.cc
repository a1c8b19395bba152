#include "cli/soak/scores.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::cli::soak {
namespace {

// A place whose 20 best ids are first, first + 1, ... with logprobs from -1 downwards, all moved by `by`.
engine::TokenLogprob place(TokenId first, float by = 0.0f) {
  engine::TokenLogprob token{.id = first, .logprob = -1.0f + by, .top = {}};
  for (int k = 0; k < ops::kMaxTopLogprobs; ++k) token.top.emplace_back(first + k, -1.0f - 0.25f * static_cast<float>(k) + by);
  return token;
}

TEST(SoakScores, EveryTokenCountsAlsoBehindOneThatDiffers) {
  const Answer got{{place(5), place(40, 0.5f), place(60, 0.25f)}, std::nullopt};
  const engine::TokenLogprob there[] = {place(5), place(40), place(60)};
  Scores scores;
  scores.add(got, there);
  EXPECT_EQ(scores.tokens(), 3u);
  EXPECT_NEAR(scores.figures().mean, 0.25, 1e-6);
  EXPECT_NEAR(scores.figures().max, 0.5, 1e-6);
  EXPECT_NEAR(scores.figures().regret, 0.0, 1e-6);
}

TEST(SoakScores, AnotherFavouriteIsRegret) {
  const engine::TokenLogprob there = place(5);
  Scores scores;
  scores.add({{place(6)}, std::nullopt}, {&there, 1});
  EXPECT_NEAR(scores.figures().regret, 0.25, 1e-6);
  EXPECT_NEAR(scores.figures().mean, 0.25, 1e-6);
}

TEST(SoakScores, LogprobsThatAreNoNumbersAreFar) {
  const engine::TokenLogprob there = place(5);
  Scores scores;
  scores.add({{place(5, std::numeric_limits<float>::quiet_NaN())}, std::nullopt}, {&there, 1});
  EXPECT_FALSE(scores.figures().mean <= 1.0);
}

}  // namespace
}  // namespace tandem::cli::soak
