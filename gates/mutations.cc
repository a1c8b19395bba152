#include "gates/mutations.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ops/forwarding_backend.h"

namespace tandem::gates {
namespace {

using namespace ops;  // the arguments' names, as in a backend

constexpr MutationName kAll[] = {
    {Mutation::NoDecay, "no decay"},
    {Mutation::DecayTwice, "decay applied twice"},
    {Mutation::ValueHeadsSwapped, "value heads swapped"},
    {Mutation::NormPlusOneDropped, "the +1 of a norm dropped"},
    {Mutation::ConvTailLost, "conv tail lost between chunks"},
    {Mutation::StateZeroed, "state zeroed at a chunk"},
    {Mutation::QueryAndGateExchanged, "query and gate halves exchanged"},
    {Mutation::RopePairOffset, "rope pair offset 128"},
    {Mutation::KeyNotNormalised, "key not normalised"},
    {Mutation::BetaDropped, "beta dropped"},
    {Mutation::GateBeforeNorm, "gate before norm"},
    {Mutation::ResidualLost, "one layer's residual lost"},
    {Mutation::LayerLost, "one layer's output lost"},
    {Mutation::AttentionGateDropped, "attention gate dropped"},
};

float silu(float x) { return x / (1.0f + std::exp(-x)); }

class MutatingBackend final : public ForwardingBackend {
 public:
  MutatingBackend(std::unique_ptr<Backend> inner, Mutation mutation) : ForwardingBackend(std::move(inner)), mutation_(mutation) {}

  Result<const float*> load_vector(std::span<const float> values, std::string_view what) override {
    std::vector<float> changed(values.begin(), values.end());
    const bool q_norm = what.ends_with("q_norm"), k_norm = what.ends_with("k_norm");
    if (mutation_ == Mutation::NormPlusOneDropped && q_norm) {
      for (float& value : changed) value -= 1.0f;
    }
    if (mutation_ == Mutation::RopePairOffset && (q_norm || k_norm)) exchange(changed.data());
    return inner_->load_vector(changed, what);
  }

  Result<void> begin_step(const StepView& step) override {
    rows_.assign(step.rows.begin(), step.rows.end());
    blocks_ = 0;
    return inner_->begin_step(step);
  }

  Result<void> reduce_add_norm(const ReduceAddNormArgs& args) override {
    const int block = blocks_++;
    const auto bytes = static_cast<std::size_t>(args.residual.size(0) * args.residual.size(1)) * sizeof(bf16);
    // The second layer's MLP: in the middle of the smallest models, early in the others.
    if (mutation_ == Mutation::ResidualLost && block == 3) TANDEM_TRY(inner_->fill_bytes(args.residual.data, 0, bytes));
    if (mutation_ == Mutation::LayerLost && block == 3) TANDEM_TRY(inner_->fill_bytes(args.partial.data, 0, bytes));
    return inner_->reduce_add_norm(args);
  }

  Result<void> attention_prepare(const AttentionPrepareArgs& args) override {
    const auto heads = static_cast<int>(args.q.size(1));
    if (mutation_ == Mutation::QueryAndGateExchanged) {
      TANDEM_TRY(edit(args.projected, [&](bf16* row) {
        for (int j = 0; j < heads; ++j) std::swap_ranges(row + 512 * j, row + 512 * j + 256, row + 512 * j + 256);
      }));
    }
    // Queries and keys with dimensions 32..63 and 128..159 exchanged have the same products, and the
    // rotation then pairs i with i + 128 of the real ones.
    if (mutation_ == Mutation::RopePairOffset) {
      TANDEM_TRY(edit(args.projected, [&](bf16* row) {
        for (int j = 0; j < heads; ++j) exchange(row + 512 * j);
        for (int j = 0; j < args.kv.kv_heads; ++j) exchange(row + 512 * heads + 256 * j);
      }));
    }
    return inner_->attention_prepare(args);
  }

  Result<void> attention(const AttentionArgs& args) override {
    if (mutation_ == Mutation::AttentionGateDropped) {
      // sigmoid(30) rounds to 1.
      const auto gate_width = static_cast<std::size_t>(args.gate.size(2));
      const std::vector<bf16> open(gate_width, to_bf16(30.0f));
      for (std::int64_t t = 0; t < args.gate.size(0); ++t) {
        for (std::int64_t j = 0; j < args.gate.size(1); ++j) {
          TANDEM_TRY(inner_->copy_to_device(const_cast<bf16*>(args.gate.row(t, j)), open.data(), gate_width * sizeof(bf16)));
        }
      }
    }
    return inner_->attention(args);
  }

  // delta_mixer stays the three stages, so that a fault can stand between them.
  Result<void> delta_prepare(const DeltaPrepareArgs& args) override {
    if (mutation_ == Mutation::ConvTailLost) {
      const std::size_t bytes = static_cast<std::size_t>(args.shape.channels()) * kConvWindow * sizeof(bf16);
      TANDEM_TRY(for_later_chunks([&](std::int64_t slot) {
        return inner_->fill_bytes(args.state.conv + slot * args.state.conv_stride, 0, bytes);
      }));
    }
    TANDEM_TRY(inner_->delta_prepare(args));
    switch (mutation_) {
      case Mutation::NoDecay: return edit(args.decay, [&](float* row) { scale(row, args.decay.size(1), 0.0f); });
      case Mutation::DecayTwice: return edit(args.decay, [&](float* row) { scale(row, args.decay.size(1), 2.0f); });
      case Mutation::BetaDropped:
        return edit(args.beta, [&](float* row) { std::fill(row, row + args.beta.size(1), 1.0f); });
      case Mutation::ValueHeadsSwapped:
        return edit(args.v, [&](bf16* row) { std::swap_ranges(row, row + kDeltaHeadDim, row + kDeltaHeadDim); });
      case Mutation::KeyNotNormalised: return lengthen_keys(args);
      default: return {};
    }
  }

  Result<void> delta_rule(const DeltaRuleArgs& args) override {
    if (mutation_ == Mutation::StateZeroed) {
      const std::size_t bytes = static_cast<std::size_t>(args.shape.value_heads) * kDeltaHeadDim * kDeltaHeadDim * sizeof(float);
      TANDEM_TRY(for_later_chunks([&](std::int64_t slot) {
        return inner_->fill_bytes(args.state.state + slot * args.state.state_stride, 0, bytes);
      }));
    }
    return inner_->delta_rule(args);
  }

  Result<void> gated_norm(const GatedNormArgs& args) override {
    if (mutation_ != Mutation::GateBeforeNorm) return inner_->gated_norm(args);
    const std::int64_t heads = args.o.size(1);
    std::vector<float> weight(kDeltaHeadDim);
    TANDEM_TRY(inner_->copy_to_host(weight.data(), args.weight, weight.size() * sizeof(float)));
    std::vector<bf16> o(static_cast<std::size_t>(heads) * kDeltaHeadDim), z(o.size());
    const std::size_t bytes = o.size() * sizeof(bf16);
    for (std::int64_t t = 0; t < args.o.size(0); ++t) {
      TANDEM_TRY(inner_->copy_to_host(o.data(), args.o.row(t), bytes));
      TANDEM_TRY(inner_->copy_to_host(z.data(), args.z.row(t), bytes));
      for (std::int64_t h = 0; h < heads; ++h) {
        bf16* head = o.data() + h * kDeltaHeadDim;
        float gated[kDeltaHeadDim], squares = 0.0f;
        for (int i = 0; i < kDeltaHeadDim; ++i) {
          gated[i] = to_float(head[i]) * silu(to_float(z[static_cast<std::size_t>(h * kDeltaHeadDim + i)]));
          squares += gated[i] * gated[i];
        }
        const float scale_by = 1.0f / std::sqrt(squares / kDeltaHeadDim + args.eps);
        for (int i = 0; i < kDeltaHeadDim; ++i) head[i] = to_bf16(gated[i] * scale_by * weight[static_cast<std::size_t>(i)]);
      }
      TANDEM_TRY(inner_->copy_to_device(args.y.row(t), o.data(), bytes));
    }
    return {};
  }

 private:
  // Dimensions 32..63 and 128..159 of one head change places.
  template <class T>
  static void exchange(T* head) {
    std::swap_ranges(head + 32, head + 64, head + 128);
  }

  static void scale(float* row, std::int64_t count, float by) {
    for (std::int64_t i = 0; i < count; ++i) row[i] *= by;
  }

  // Changes every token's row of a view that operators have written or will read.
  template <class T, int Rank, class Change>
  Result<void> edit(View<T, Rank> view, const Change& change) {
    using Element = std::remove_const_t<T>;
    std::int64_t width = 1;
    for (int axis = 1; axis < Rank; ++axis) width *= view.size(axis);
    std::vector<Element> row(static_cast<std::size_t>(width));
    for (std::int64_t t = 0; t < view.size(0); ++t) {
      auto* device = const_cast<Element*>(view.row(t));
      TANDEM_TRY(inner_->copy_to_host(row.data(), device, row.size() * sizeof(Element)));
      change(row.data());
      TANDEM_TRY(inner_->copy_to_device(device, row.data(), row.size() * sizeof(Element)));
    }
    return {};
  }

  template <class Do>
  Result<void> for_later_chunks(const Do& act) {
    for (const StepRow& row : rows_) {
      if (row.kind == RowKind::Prefill && row.base_pos > 0) TANDEM_TRY(act(row.slot.value));
    }
    return {};
  }

  // Each key gets a length that depends on its token, as one that was never normalised has.
  Result<void> lengthen_keys(const DeltaPrepareArgs& args) {
    const std::int64_t width = args.shape.key_width();
    std::vector<bf16> before(static_cast<std::size_t>(width));
    std::vector<float> keys(static_cast<std::size_t>(width));
    for (std::int64_t t = 0; t < args.k.size(0); ++t) {
      TANDEM_TRY(inner_->copy_to_host(before.data(), args.projected.row(t) + width, before.size() * sizeof(bf16)));
      TANDEM_TRY(inner_->copy_to_host(keys.data(), args.k.row(t), keys.size() * sizeof(float)));
      for (std::int64_t h = 0; h < args.shape.key_heads; ++h) {
        float squares = 0.0f;
        for (std::int64_t i = h * kDeltaHeadDim; i < (h + 1) * kDeltaHeadDim; ++i) {
          squares += to_float(before[static_cast<std::size_t>(i)]) * to_float(before[static_cast<std::size_t>(i)]);
        }
        scale(keys.data() + h * kDeltaHeadDim, kDeltaHeadDim, std::sqrt(squares) / 10.0f);
      }
      TANDEM_TRY(inner_->copy_to_device(args.k.row(t), keys.data(), keys.size() * sizeof(float)));
    }
    return {};
  }

  const Mutation mutation_;
  std::vector<StepRow> rows_;
  int blocks_ = 0;
};

}  // namespace

std::span<const MutationName> all_mutations() { return kAll; }

std::unique_ptr<ops::Backend> make_mutating_backend(std::unique_ptr<ops::Backend> inner, Mutation mutation) {
  return std::make_unique<MutatingBackend>(std::move(inner), mutation);
}

}  // namespace tandem::gates
