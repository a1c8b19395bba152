#include "ops/sampling_ranges.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::ops {
namespace {

TEST(SamplingRanges, TheBoundsThemselvesAreHeldAndNothingBeyondNorNaN) {
  for (const NumberRange& range : {kTemperature, kTopP, kMinP, kRepetitionPenalty, kPresencePenalty, kFrequencyPenalty, kLogitBias}) {
    for (const double bound : {range.least, range.most}) {
      EXPECT_TRUE(range.holds(bound)) << range.name;
      EXPECT_TRUE(range.holds(static_cast<float>(bound))) << range.name;  // rounded, as the engine has it
    }
    EXPECT_FALSE(range.holds(std::nextafter(range.least, -1e9))) << range.name;
    EXPECT_FALSE(range.holds(std::nextafter(range.most, 1e9))) << range.name;
    EXPECT_FALSE(range.holds(std::nextafter(static_cast<float>(range.most), 1e9f))) << range.name;
    EXPECT_FALSE(range.holds(std::nan(""))) << range.name;
    EXPECT_FALSE(range.holds(std::nanf(""))) << range.name;
  }
  EXPECT_TRUE(kMaxTokens.holds(1) && !kMaxTokens.holds(0));
  EXPECT_TRUE(kTopK.holds(-1) && !kTopK.holds(-2));
}

TEST(SamplingRanges, ARefusalNamesTheFieldTheBoundsAndWhatCame) {
  EXPECT_EQ(out_of_range(kTemperature, "3"), "temperature must be a number from 0 to 2, got 3");
  EXPECT_EQ(out_of_range(kRepetitionPenalty, "0"), "repetition_penalty must be a number from 0.01 to 100, got 0");
  EXPECT_EQ(out_of_range(kTopK, "-2"), "top_k must be an integer of at least -1, got -2");
  EXPECT_EQ(out_of_range(kMaxTokens, "0"), "max_tokens must be an integer from 1 to 2147483647, got 0");
}

}  // namespace
}  // namespace tandem::ops
