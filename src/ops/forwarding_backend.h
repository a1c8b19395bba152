#pragma once

#include <memory>
#include <utility>

#include "ops/backend.h"

namespace tandem::ops {

// The base of a backend that stands in front of another one: it hands on everything that a backend must have, and a child
// overrides what it changes. What a backend may leave as it is stays the contract's own: delta_mixer and block are their
// stages, so that a child sees each of them, and steps are not recorded.
// Owns the inner backend; thread and lifetime are the inner one's.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  Result<DeviceInfo> device() override { return inner_->device(); }
  void* stream() override { return inner_->stream(); }
  Result<void*> allocate(std::size_t bytes, MemoryUse use, std::string_view what) override {
    return inner_->allocate(bytes, use, what);
  }
  std::span<const Allocation> allocations() const override { return inner_->allocations(); }
  Result<LinearWeight> load_linear(std::span<const HostMatrix> parts, std::string_view what) override {
    return inner_->load_linear(parts, what);
  }
  Result<LinearWeight> load_gate_up(const HostMatrix& gate, const HostMatrix& up, std::string_view what) override {
    return inner_->load_gate_up(gate, up, what);
  }
  Result<EmbeddingWeight> load_embedding(const HostMatrix& table) override { return inner_->load_embedding(table); }
  Result<LinearWeight> tie_head(const EmbeddingWeight& embedding) override { return inner_->tie_head(embedding); }
  Result<const float*> load_vector(std::span<const float> values, std::string_view what) override {
    return inner_->load_vector(values, what);
  }
  Result<std::vector<bf16>> read_back(const LinearWeight& weight) override { return inner_->read_back(weight); }
  Result<void> reserve(const StepLimits& limits) override { return inner_->reserve(limits); }

  Result<void> begin_step(const StepView& step) override { return inner_->begin_step(step); }
  Result<void> embed(const EmbedArgs& args) override { return inner_->embed(args); }
  Result<void> norm(const NormArgs& args) override { return inner_->norm(args); }
  Result<void> reduce_add_norm(const ReduceAddNormArgs& args) override { return inner_->reduce_add_norm(args); }
  Result<void> linear(const LinearArgs& args) override { return inner_->linear(args); }
  Result<void> linear_swiglu(const LinearSwigluArgs& args) override { return inner_->linear_swiglu(args); }
  Result<void> attention_prepare(const AttentionPrepareArgs& args) override { return inner_->attention_prepare(args); }
  Result<void> attention(const AttentionArgs& args) override { return inner_->attention(args); }
  Result<void> delta_prepare(const DeltaPrepareArgs& args) override { return inner_->delta_prepare(args); }
  Result<void> delta_rule(const DeltaRuleArgs& args) override { return inner_->delta_rule(args); }
  Result<void> gated_norm(const GatedNormArgs& args) override { return inner_->gated_norm(args); }
  Result<void> head(const HeadArgs& args) override { return inner_->head(args); }
  Result<void> sample(const SampleArgs& args) override { return inner_->sample(args); }
  Result<void> note_prompt() override { return inner_->note_prompt(); }
  Result<void> store_sampled(const std::int32_t* ids) override { return inner_->store_sampled(ids); }
  Result<std::uint64_t> end_step() override { return inner_->end_step(); }
  Result<std::span<const TokenChoice>> wait(std::uint64_t ticket) override { return inner_->wait(ticket); }

  Result<void> copy_to_host(void* host, const void* device, std::size_t bytes) override {
    return inner_->copy_to_host(host, device, bytes);
  }
  Result<void> copy_to_device(void* device, const void* host, std::size_t bytes) override {
    return inner_->copy_to_device(device, host, bytes);
  }
  Result<void> fill_bytes(void* device, std::uint8_t value, std::size_t bytes) override {
    return inner_->fill_bytes(device, value, bytes);
  }
  Result<void> synchronize() override { return inner_->synchronize(); }

 protected:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace tandem::ops
