#include "cli/bench/report.h"

#include <gtest/gtest.h>

namespace tandem::cli::bench {
namespace {

Time at(int ms) { return Time{} + std::chrono::milliseconds(ms); }

TEST(BenchReport, PercentilesAreLinearBetweenNeighbours) {
  const Percentiles p = percentiles({4, 1, 3, 2, 5});
  EXPECT_DOUBLE_EQ(p.p50, 3);
  EXPECT_DOUBLE_EQ(p.p90, 4.6);
  EXPECT_DOUBLE_EQ(p.largest, 5);
  EXPECT_DOUBLE_EQ(p.mean, 3);
  EXPECT_DOUBLE_EQ(percentiles({}).p50, 0);
}

TEST(BenchReport, TimesFollowTheWordsOfMeasurement) {
  const std::vector<Timeline> lines = {{.sent = at(0), .tokens = {at(10), at(14), at(16)}, .prompt_tokens = 5},
                                       {.sent = at(0), .tokens = {at(12), at(16), at(20)}, .prompt_tokens = 7}};
  const Report report = make_report({.name = "t", .streams = 2, .output_tokens = 3}, lines, {});
  EXPECT_DOUBLE_EQ(report.ttft.p50, 11);           // sent to first token
  EXPECT_DOUBLE_EQ(report.tpot.mean, (3.0 + 4.0) / 2);  // (last - first) / (tokens - 1)
  EXPECT_DOUBLE_EQ(report.itl.largest, 4);
  EXPECT_DOUBLE_EQ(report.seconds, 0.020);
  EXPECT_DOUBLE_EQ(report.output_tokens_a_second, 6 / 0.020);
  EXPECT_DOUBLE_EQ(report.total_tokens_a_second, 18 / 0.020);
  EXPECT_DOUBLE_EQ(report.step_ms, 3);  // gaps wholly inside [12, 16]: 4 (12-16) and 2 (14-16)
}

}  // namespace
}  // namespace tandem::cli::bench
