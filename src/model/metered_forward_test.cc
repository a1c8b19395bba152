#include <gtest/gtest.h>

#include <numeric>

#include "model/testing.h"
#include "ops/cpu/backend.h"
#include "ops/metered_backend.h"

namespace tandem::model {
namespace {

using testing::TestRank;

// A prompt and three decode steps.
std::vector<ops::TokenChoice> run(TestRank& rank, const std::vector<TokenId>& ids) {
  const std::size_t prompt = ids.size() - 3;
  auto all = rank.run_chunks({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(prompt)}, {64, static_cast<int>(prompt)}, 0, {0, 1, 2});
  for (std::size_t i = prompt; i < ids.size(); ++i) {
    const auto one = rank.run({{.slot = 0, .base_pos = static_cast<int>(i), .ids = {ids[i]}, .pages = {0, 1, 2}, .decode = true}});
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST(MeteredForward, TimingOperatorsChangesNoBitAndThePartsMakeTheStep) {
  const testing::Fabricated model(testing::small_geometry());
  const auto ids = testing::random_ids(1, 120, model.checkpoint->geometry().vocab);
  const auto make = [&](std::unique_ptr<ops::Backend> backend) {
    return TestRank(*model.checkpoint, RankId{0}, 1, LinearAttention::Replicated,
                    std::move(*comm::make_world_of_one()->join(RankId{0}, nullptr)), std::move(backend));
  };
  TestRank plain = make(ops::make_cpu_backend({.threads = 2}));
  const SteadyClock clock;
  const auto meter = std::make_shared<ops::ShareMeter>();
  TestRank metered = make(ops::make_metered_backend(ops::make_cpu_backend({.threads = 2}), meter, clock));
  testing::expect_same(run(metered, ids), run(plain, ids), "metered");
  EXPECT_EQ(metered.state_bytes(0), plain.state_bytes(0));

  const ops::StepShares shares = meter->take();
  EXPECT_EQ(shares.prompt.steps, 2);
  EXPECT_EQ(shares.decode.steps, 3);
  EXPECT_EQ(shares.mixed.steps, 0);
  EXPECT_EQ(shares.prompt.tokens + shares.decode.tokens, 120);
  for (const ops::StepTimes* times : {&shares.prompt, &shares.decode}) {
    EXPECT_EQ(std::accumulate(times->parts.begin(), times->parts.end(), Nanoseconds{}), times->total);
    for (std::size_t part = 0; part < ops::kStepParts; ++part)
      EXPECT_GT(times->parts[part].count(), 0) << name(static_cast<ops::StepPart>(part));
  }
}

}  // namespace
}  // namespace tandem::model
