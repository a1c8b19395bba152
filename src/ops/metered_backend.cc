#include "ops/metered_backend.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ops/forwarding_backend.h"

namespace tandem::ops {
namespace {

class MeteredBackend final : public ForwardingBackend {
 public:
  MeteredBackend(std::unique_ptr<Backend> inner, std::shared_ptr<ShareMeter> meter, const Clock& clock)
      : ForwardingBackend(std::move(inner)), meter_(std::move(meter)), clock_(clock) {}

  Result<void> reserve(const StepLimits& limits) override {
    weight_bytes_ = 0;
    for (const Allocation& piece : inner_->allocations())
      if (piece.use == MemoryUse::Weights) weight_bytes_ += static_cast<std::int64_t>(piece.bytes);
    return inner_->reserve(limits);
  }

  Result<void> begin_step(const StepView& step) override {
    const TimePoint now = clock_.now();
    const auto goes_on = [](const StepRow& row) { return row.base_pos > 0; };
    step_ = {.steps = 1, .tokens = step.total_tokens()};
    if (last_end_ && std::any_of(step.rows.begin(), step.rows.end(), goes_on))
      step_.of(StepPart::Between) = now - *last_end_;
    begin_ = now;
    decode_rows_ = step.decode_rows;
    rows_ = static_cast<int>(step.rows.size());
    return inner_->begin_step(step);
  }

  Result<void> embed(const EmbedArgs& args) override {
    return timed(StepPart::Embedding, [&] { return inner_->embed(args); });
  }
  Result<void> norm(const NormArgs& args) override {
    return timed(StepPart::Norms, [&] { return inner_->norm(args); });
  }
  Result<void> reduce_add_norm(const ReduceAddNormArgs& args) override {
    return timed(StepPart::Norms, [&] { return inner_->reduce_add_norm(args); });
  }
  Result<void> linear(const LinearArgs& args) override {
    return timed(StepPart::Products, [&] { return inner_->linear(args); });
  }
  Result<void> linear_swiglu(const LinearSwigluArgs& args) override {
    return timed(StepPart::Products, [&] { return inner_->linear_swiglu(args); });
  }
  Result<void> attention_prepare(const AttentionPrepareArgs& args) override {
    return timed(StepPart::Rotary, [&] { return inner_->attention_prepare(args); });
  }
  Result<void> attention(const AttentionArgs& args) override {
    return timed(StepPart::Attention, [&] { return inner_->attention(args); });
  }
  Result<void> delta_prepare(const DeltaPrepareArgs& args) override {
    return timed(StepPart::Delta, [&] { return inner_->delta_prepare(args); });
  }
  Result<void> delta_rule(const DeltaRuleArgs& args) override {
    return timed(StepPart::Delta, [&] { return inner_->delta_rule(args); });
  }
  Result<void> gated_norm(const GatedNormArgs& args) override {
    return timed(StepPart::Delta, [&] { return inner_->gated_norm(args); });
  }
  Result<void> delta_mixer(const DeltaMixerArgs& args) override {
    return timed(StepPart::Delta, [&] { return inner_->delta_mixer(args); });
  }
  Result<void> head(const HeadArgs& args) override {
    return timed(StepPart::Head, [&] { return inner_->head(args); });
  }
  Result<void> sample(const SampleArgs& args) override {
    return timed(StepPart::Sampling, [&] { return inner_->sample(args); });
  }

  Result<std::uint64_t> end_step() override {
    TANDEM_ASSIGN(const std::uint64_t ticket, inner_->end_step());
    const TimePoint now = clock_.now();
    last_end_ = now;
    step_.total = now - begin_ + step_.of(StepPart::Between);
    Nanoseconds told{};
    for (const Nanoseconds part : step_.parts) told += part;
    step_.of(StepPart::Host) = step_.total - told;
    meter_->add(step_, decode_rows_, rows_, weight_bytes_);
    return ticket;
  }

 private:
  template <class Operator>
  Result<void> timed(StepPart part, const Operator& run) {
    const TimePoint start = clock_.now();
    Result<void> done = run();
    step_.of(part) += clock_.now() - start;
    return done;
  }

  const std::shared_ptr<ShareMeter> meter_;
  const Clock& clock_;
  std::int64_t weight_bytes_ = 0;

  StepTimes step_;  // the one that is being made
  TimePoint begin_;
  std::optional<TimePoint> last_end_;
  int decode_rows_ = 0;
  int rows_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_metered_backend(std::unique_ptr<Backend> inner, std::shared_ptr<ShareMeter> meter,
                                              const Clock& clock) {
  return std::make_unique<MeteredBackend>(std::move(inner), std::move(meter), clock);
}

}  // namespace tandem::ops
