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

TEST(BenchReport, SharesNameEveryPartLargestFirstAndSumToTheStep) {
  Report report = make_report({.name = "t"}, {}, {});
  EXPECT_EQ(as_text(report).find("steps:"), std::string::npos);
  Shares shares{.steps = {}, .read_bandwidth = 2e10};
  shares.steps.weight_bytes = 1'000'000'000;
  ops::StepTimes& decode = shares.steps.decode;
  decode = {.steps = 2, .tokens = 2, .total = std::chrono::milliseconds(200)};
  decode.of(ops::StepPart::Delta) = std::chrono::milliseconds(50);
  decode.of(ops::StepPart::Products) = std::chrono::milliseconds(150);
  report.shares = shares;
  const std::string text = as_text(report);
  EXPECT_NE(text.find("decode steps: 2 of 100.000 ms and 1.0 tokens: weight products 75.0 % (75.000 ms), delta rule 25.0 % (25.000 ms), head 0.0 %"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1000 MB of weights a step, 10.00 GB/s; the same threads read memory at 20.00 GB/s: 0.50 of it"), std::string::npos) << text;
  EXPECT_EQ(text.find("prompt steps"), std::string::npos) << text;
  const std::string json = as_json(report);
  EXPECT_NE(json.find(R"("shares":{"decode":{"steps":2,"tokens":2,"step_ms":100)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("weight_bytes_per_second":1e+10)"), std::string::npos) << json;
}

// Rounds follow each other: no moment exists at which streams of two of them decode.
TEST(BenchReport, AStepWhileAllDecodeIsLookedForInEachRound) {
  const std::vector<Timeline> lines = {{.sent = at(0), .tokens = {at(10), at(14), at(18)}, .prompt_tokens = 5, .round = 1},
                                       {.sent = at(0), .tokens = {at(10), at(14), at(18)}, .prompt_tokens = 5, .round = 1},
                                       {.sent = at(20), .tokens = {at(30), at(36), at(42)}, .prompt_tokens = 5, .round = 2},
                                       {.sent = at(20), .tokens = {at(30), at(36), at(42)}, .prompt_tokens = 5, .round = 2}};
  EXPECT_DOUBLE_EQ(make_report({.name = "t", .streams = 2, .output_tokens = 3}, lines, {}).step_ms, 5);
}

}  // namespace
}  // namespace tandem::cli::bench
