#include "ops/metered_backend.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/host_backend.h"

namespace tandem::ops {
namespace {

using std::chrono::microseconds;

// Operators that do nothing but take their time.
class SlowBackend final : public HostBackend {
 public:
  explicit SlowBackend(FakeClock& clock) : HostBackend("slow"), clock_(clock) {}

  Result<LinearWeight> tie_head(const EmbeddingWeight&) override { return LinearWeight{}; }
  Result<std::vector<bf16>> read_back(const LinearWeight&) override { return std::vector<bf16>{}; }
  Result<void> begin_step(const StepView&) override { return take(1); }
  Result<void> embed(const EmbedArgs&) override { return take(2); }
  Result<void> norm(const NormArgs&) override { return take(4); }
  Result<void> reduce_add_norm(const ReduceAddNormArgs&) override { return take(8); }
  Result<void> linear(const LinearArgs&) override { return take(16); }
  Result<void> linear_swiglu(const LinearSwigluArgs&) override { return take(32); }
  Result<void> attention_prepare(const AttentionPrepareArgs&) override { return take(64); }
  Result<void> attention(const AttentionArgs&) override { return take(128); }
  Result<void> delta_prepare(const DeltaPrepareArgs&) override { return take(1000); }
  Result<void> delta_rule(const DeltaRuleArgs&) override { return take(1000); }
  Result<void> gated_norm(const GatedNormArgs&) override { return take(1000); }
  Result<void> delta_mixer(const DeltaMixerArgs&) override { return take(256); }
  Result<void> head(const HeadArgs&) override { return take(512); }
  Result<void> sample(const SampleArgs&) override { return take(1024); }
  Result<void> store_sampled(const std::int32_t*) override { return take(2048); }
  Result<std::uint64_t> end_step() override {
    clock_.advance(microseconds(4096));
    return 1;
  }

 private:
  Result<LinearWeight> pack(std::span<const HostMatrix>, Stacked, std::string_view) override { return LinearWeight{}; }
  Result<void> take(int time) {
    clock_.advance(microseconds(time));
    return {};
  }
  FakeClock& clock_;
};

// One layer of each kind, as the forward pass runs them.
void run_step(Backend& backend, FakeClock& clock, const std::vector<StepRow>& rows, int decode_rows) {
  const std::vector<TokenId> tokens(10);
  clock.advance(microseconds(100000));
  ASSERT_TRUE(backend.begin_step({.tokens = tokens, .rows = rows, .pages = {}, .logit_rows = {}, .decode_rows = decode_rows}));
  ASSERT_TRUE(backend.embed({}));
  ASSERT_TRUE(backend.norm({}));
  ASSERT_TRUE(backend.delta_mixer({}));
  const int packed = 0;
  ASSERT_TRUE(backend.block({.next = {.packed = &packed}}));
  ASSERT_TRUE(backend.attention_prepare({}));
  ASSERT_TRUE(backend.attention({}));
  clock.advance(microseconds(8192));  // the forward pass itself
  ASSERT_TRUE(backend.head({}));
  ASSERT_TRUE(backend.sample({}));
  ASSERT_TRUE(backend.store_sampled(nullptr));
  ASSERT_TRUE(backend.end_step());
}

Nanoseconds sum(const StepTimes& times) { return std::accumulate(times.parts.begin(), times.parts.end(), Nanoseconds{}); }

TEST(MeteredBackend, EveryMomentOfAStepBelongsToOnePart) {
  FakeClock clock;
  const auto meter = std::make_shared<ShareMeter>();
  const auto backend = make_metered_backend(std::make_unique<SlowBackend>(clock), meter, clock);
  run_step(*backend, clock, {{.kind = RowKind::Prefill, .tokens = 10}}, 0);
  const StepShares shares = meter->take();
  const StepTimes& step = shares.prompt;
  EXPECT_EQ(step.steps, 1);
  EXPECT_EQ(step.tokens, 10);
  EXPECT_EQ(step.of(StepPart::Products), microseconds(3 * 16 + 32));
  EXPECT_EQ(step.of(StepPart::Head), microseconds(512));
  EXPECT_EQ(step.of(StepPart::Delta), microseconds(256));
  EXPECT_EQ(step.of(StepPart::Attention), microseconds(128));
  EXPECT_EQ(step.of(StepPart::Norms), microseconds(4 + 2 * 8));
  EXPECT_EQ(step.of(StepPart::Rotary), microseconds(64));
  EXPECT_EQ(step.of(StepPart::Embedding), microseconds(2));
  EXPECT_EQ(step.of(StepPart::Sampling), microseconds(1024));
  EXPECT_EQ(step.of(StepPart::Host), microseconds(1 + 2048 + 4096 + 8192));
  EXPECT_EQ(step.of(StepPart::Between), Nanoseconds{});
  EXPECT_EQ(sum(step), step.total);
  EXPECT_EQ(shares.decode.steps + shares.mixed.steps, 0);
}

TEST(MeteredBackend, TheWaitBeforeAStepCountsOnlyIfARequestGoesOn) {
  FakeClock clock;
  const auto meter = std::make_shared<ShareMeter>();
  const auto backend = make_metered_backend(std::make_unique<SlowBackend>(clock), meter, clock);
  const StepRow first{.kind = RowKind::Prefill, .tokens = 10}, next{.kind = RowKind::Decode, .base_pos = 10};
  run_step(*backend, clock, {first}, 0);
  run_step(*backend, clock, {first}, 0);
  StepShares shares = meter->take();
  EXPECT_EQ(shares.prompt.steps, 2);
  EXPECT_EQ(shares.prompt.of(StepPart::Between), Nanoseconds{});
  run_step(*backend, clock, {next}, 1);
  run_step(*backend, clock, {next, first}, 1);
  shares = meter->take();
  EXPECT_EQ(shares.prompt.steps, 0);  // what was taken does not come again
  EXPECT_EQ(shares.decode.of(StepPart::Between), microseconds(100000));
  EXPECT_EQ(shares.mixed.of(StepPart::Between), microseconds(100000));
  EXPECT_EQ(sum(shares.decode), shares.decode.total);
  EXPECT_EQ(sum(shares.mixed), shares.mixed.total);
}

}  // namespace
}  // namespace tandem::ops
