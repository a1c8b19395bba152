#include "ops/reference/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/host_backend.h"
#include "ops/reference/operators.h"

namespace tandem::ops {
namespace {

class ReferenceBackend final : public HostBackend {
 public:
  ReferenceBackend() : HostBackend("cpu (reference, 1 thread)") {}

  Result<LinearWeight> pack(std::span<const HostMatrix> parts, Stacked, std::string_view what) override {
    LinearWeight weight;
    for (const HostMatrix& part : parts) {
      weight.rows += part.rows;
      weight.cols = part.cols;
    }
    const auto bytes = static_cast<std::size_t>(weight.rows * weight.cols) * sizeof(bf16);
    TANDEM_ASSIGN(void* copy, allocate(bytes, MemoryUse::Weights, what));
    auto* to = static_cast<bf16*>(copy);
    for (const HostMatrix& part : parts) {
      for (std::int64_t r = 0; r < part.rows; ++r) {
        to = std::copy_n(part.data + r * part.row_stride, part.cols, to);
      }
    }
    weight.packed = copy;
    return weight;
  }

  Result<LinearWeight> tie_head(const EmbeddingWeight& embedding) override {
    return LinearWeight{.packed = embedding.table, .rows = embedding.vocab, .cols = embedding.hidden};
  }

  Result<std::vector<bf16>> read_back(const LinearWeight& weight) override {
    const auto* data = static_cast<const bf16*>(weight.packed);
    return std::vector<bf16>(data, data + weight.rows * weight.cols);
  }

  Result<void> embed(const EmbedArgs& args) override {
    std::vector<TokenId> ids(step().tokens().size());
    for (const StepRow& row : step().rows()) {
      for (int t = row.token_begin; t < row.token_begin + row.tokens; ++t) {
        ids[static_cast<std::size_t>(t)] = input_token(row, t);
      }
    }
    reference::embed(ids, args);
    return {};
  }
  Result<void> norm(const NormArgs& args) override {
    reference::norm(args);
    return {};
  }
  Result<void> reduce_add_norm(const ReduceAddNormArgs& args) override {
    return reference::reduce_add_norm(args);
  }
  Result<void> linear(const LinearArgs& args) override {
    reference::linear(args);
    return {};
  }
  Result<void> linear_swiglu(const LinearSwigluArgs& args) override {
    reference::linear_swiglu(args);
    return {};
  }
  Result<void> attention_prepare(const AttentionPrepareArgs& args) override {
    reference::attention_prepare(step(), args);
    return {};
  }
  Result<void> attention(const AttentionArgs& args) override {
    reference::attention(step(), args);
    return {};
  }
  Result<void> delta_prepare(const DeltaPrepareArgs& args) override {
    reference::delta_prepare(step(), args);
    return {};
  }
  Result<void> delta_rule(const DeltaRuleArgs& args) override {
    reference::delta_rule(step(), args);
    return {};
  }
  Result<void> gated_norm(const GatedNormArgs& args) override {
    reference::gated_norm(args);
    return {};
  }
  Result<void> head(const HeadArgs& args) override {
    reference::head(step(), args);
    return {};
  }
  Result<void> sample(const SampleArgs& args) override {
    reference::sample(step(), sampler(), args, choices());
    return {};
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace tandem::ops
