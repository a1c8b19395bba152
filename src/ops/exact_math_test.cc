#include "ops/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/philox.h"

namespace tandem::ops {
namespace {

double ulps(float got, double want) {
  return std::abs(got - want) / std::ldexp(1.0, std::ilogb(std::abs(want)) - 23);
}

TEST(ExactMath, ExpOfNegativesIsWithinTwoUlps) {
  EXPECT_EQ(exact::exp_negative(0.0f), 1.0f);
  EXPECT_EQ(exact::exp_negative(-INFINITY), 0.0f);
  EXPECT_EQ(exact::exp_negative(-100.0f), 0.0f);
  for (int i = 1; i < 860000; ++i) {
    const float x = -static_cast<float>(i) * 1e-4f;
    ASSERT_LE(ulps(exact::exp_negative(x), std::exp(double{x})), 2.0) << x;
  }
}

TEST(ExactMath, LogIsWithinThreeUlps) {
  EXPECT_EQ(exact::log_positive(1.0f), 0.0f);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const float x = std::ldexp(1.0f + static_cast<float>(random() % (1 << 23)) / (1 << 23),
                               static_cast<int>(random() % 120) - 60);
    const double want = std::log(double{x});
    const double unit = std::ldexp(1.0, std::max(std::ilogb(std::abs(want)), -2) - 23);
    ASSERT_LE(std::abs(exact::log_positive(x) - want), 3 * unit) << x;
  }
}

TEST(ExactMath, LogOfOneMinusKeepsSmallArguments) {
  for (float v = 1e-12f; v < 0.25f; v *= 1.01f) {
    ASSERT_LE(ulps(exact::log_one_minus(v), std::log1p(-double{v})), 3.0) << v;
  }
}

TEST(ExactMath, WeightsAddUpExactlyAndTheirLogIsTheSoftmaxs) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::uint64_t sum = 0;
  double want = 0;
  for (int i = 0; i < 248320; ++i) {
    const float x = i == 0 ? 0.0f : -std::abs(normal(random));
    sum += exact::weight(x);
    want += std::exp(double{x});
  }
  EXPECT_NEAR(exact::log_of_weights(sum), std::log(want), 2e-6);
  EXPECT_LT(exact::weight(0.0f), std::uint64_t{1} << 45);
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, MatchesItsKnownAnswers) {
  const auto expect = [](Philox4 got, Philox4 want) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], want.word[i]) << i;
  };
  expect(philox4x32_10({{0, 0, 0, 0}}, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect(philox4x32_10({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, GumbelNoiseFollowsItsDefinitionAtBothEnds) {
  for (const std::uint32_t bits :
       {0u, 1u, 12345u, 0x7fffffffu, 0xbfffffffu, 0xc0000000u, 0xfffffff0u, 0xffffffffu}) {
    const long double u = (static_cast<long double>(bits) + 0.5L) / 4294967296.0L;
    const double want = static_cast<double>(-std::log(-std::log(u)));
    EXPECT_NEAR(gumbel_of(bits), want, 2e-6 * std::max(1.0, std::abs(want))) << bits;
  }
  EXPECT_LT(gumbel_of(0xffffffffu), 23.0f);  // the CPU sampler's bound is 23.5
}

TEST(Philox, NoiseDependsOnSeedPositionAndTokenOnly) {
  EXPECT_EQ(gumbel_noise(7, 100, 5), gumbel_noise(7, 100, 5));
  EXPECT_NE(gumbel_noise(7, 100, 5), gumbel_noise(7, 100, 6));
  EXPECT_NE(gumbel_noise(7, 100, 5), gumbel_noise(7, 101, 5));
  EXPECT_NE(gumbel_noise(7, 100, 5), gumbel_noise(8, 100, 5));
  EXPECT_NE(gumbel_noise(7, 100, 5), gumbel_noise(7 | (std::uint64_t{1} << 40), 100, 5));
  EXPECT_NE(gumbel_noise(7, 100, 5), gumbel_noise(7, 100 + (std::int64_t{1} << 33), 5));
}

}  // namespace
}  // namespace tandem::ops
