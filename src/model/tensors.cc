#include "model/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {
namespace {

constexpr Role kCommonRoles[] = {Role::InputNorm, Role::PostNorm, Role::Gate, Role::Up, Role::Down};
constexpr Role kFullRoles[] = {Role::Query, Role::Key, Role::Value, Role::AttentionOut, Role::QueryNorm, Role::KeyNorm};
constexpr Role kLinearRoles[] = {Role::InQkv, Role::InZ,    Role::InB,  Role::InA,      Role::Conv,
                                 Role::DtBias, Role::ALog, Role::GatedNorm, Role::DeltaOut};

std::string_view stem(Role role) {
  switch (role) {
    case Role::Embedding: return "embed_tokens.weight";
    case Role::Head: return "lm_head.weight";
    case Role::FinalNorm: return "norm.weight";
    case Role::InputNorm: return "input_layernorm.weight";
    case Role::PostNorm: return "post_attention_layernorm.weight";
    case Role::Gate: return "mlp.gate_proj.weight";
    case Role::Up: return "mlp.up_proj.weight";
    case Role::Down: return "mlp.down_proj.weight";
    case Role::Query: return "self_attn.q_proj.weight";
    case Role::Key: return "self_attn.k_proj.weight";
    case Role::Value: return "self_attn.v_proj.weight";
    case Role::AttentionOut: return "self_attn.o_proj.weight";
    case Role::QueryNorm: return "self_attn.q_norm.weight";
    case Role::KeyNorm: return "self_attn.k_norm.weight";
    case Role::InQkv: return "linear_attn.in_proj_qkv.weight";
    case Role::InZ: return "linear_attn.in_proj_z.weight";
    case Role::InB: return "linear_attn.in_proj_b.weight";
    case Role::InA: return "linear_attn.in_proj_a.weight";
    case Role::Conv: return "linear_attn.conv1d.weight";
    case Role::DtBias: return "linear_attn.dt_bias";
    case Role::ALog: return "linear_attn.A_log";
    case Role::GatedNorm: return "linear_attn.norm.weight";
    case Role::DeltaOut: return "linear_attn.out_proj.weight";
  }
  return "?";
}

std::vector<std::int64_t> shape_of(const Geometry& g, Role role) {
  switch (role) {
    case Role::Embedding:
    case Role::Head: return {g.vocab, g.hidden};
    case Role::FinalNorm:
    case Role::InputNorm:
    case Role::PostNorm: return {g.hidden};
    case Role::Gate:
    case Role::Up: return {g.intermediate, g.hidden};
    case Role::Down: return {g.hidden, g.intermediate};
    case Role::Query: return {2 * g.query_width(), g.hidden};
    case Role::Key:
    case Role::Value: return {g.kv_width(), g.hidden};
    case Role::AttentionOut: return {g.hidden, g.query_width()};
    case Role::QueryNorm:
    case Role::KeyNorm: return {ops::kHeadDim};
    case Role::InQkv: return {g.conv_channels(), g.hidden};
    case Role::InZ: return {g.value_width(), g.hidden};
    case Role::InB:
    case Role::InA: return {g.value_heads, g.hidden};
    case Role::Conv: return {g.conv_channels(), 1, ops::kConvTaps};
    case Role::DtBias:
    case Role::ALog: return {g.value_heads};
    case Role::GatedNorm: return {ops::kDeltaHeadDim};
    case Role::DeltaOut: return {g.hidden, g.value_width()};
  }
  return {};
}

}  // namespace

std::int64_t TensorSpec::cols() const {
  std::int64_t product = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

TensorSpec tensor_spec(const Geometry& geometry, Role role, int layer) {
  std::string name = role == Role::Head ? std::string(stem(role))
                     : layer < 0        ? fmt::format("{}{}", kNestedPrefix, stem(role))
                                        : fmt::format("{}layers.{}.{}", kNestedPrefix, layer, stem(role));
  return {.role = role,
          .layer = layer,
          .name = std::move(name),
          .shape = shape_of(geometry, role),
          .float32 = role == Role::ALog || role == Role::GatedNorm};
}

std::vector<TensorSpec> text_tensors(const Geometry& geometry) {
  std::vector<TensorSpec> all;
  all.push_back(tensor_spec(geometry, Role::Embedding, -1));
  if (!geometry.tied) all.push_back(tensor_spec(geometry, Role::Head, -1));
  all.push_back(tensor_spec(geometry, Role::FinalNorm, -1));
  for (int layer = 0; layer < geometry.layer_count(); ++layer) {
    for (const Role role : kCommonRoles) all.push_back(tensor_spec(geometry, role, layer));
    if (geometry.layers[static_cast<std::size_t>(layer)] == LayerKind::Full) {
      for (const Role role : kFullRoles) all.push_back(tensor_spec(geometry, role, layer));
    } else {
      for (const Role role : kLinearRoles) all.push_back(tensor_spec(geometry, role, layer));
    }
  }
  return all;
}

WeightGroup group(Role role) {
  switch (role) {
    case Role::Embedding: return WeightGroup::Embedding;
    case Role::Head: return WeightGroup::Head;
    case Role::FinalNorm:
    case Role::InputNorm:
    case Role::PostNorm: return WeightGroup::Norms;
    case Role::Gate:
    case Role::Up:
    case Role::Down: return WeightGroup::Mlp;
    case Role::Query:
    case Role::Key:
    case Role::Value:
    case Role::AttentionOut:
    case Role::QueryNorm:
    case Role::KeyNorm: return WeightGroup::FullAttention;
    default: return WeightGroup::LinearAttention;
  }
}

std::string_view name(WeightGroup group) {
  switch (group) {
    case WeightGroup::Embedding: return "embedding";
    case WeightGroup::Head: return "head";
    case WeightGroup::FullAttention: return "full attention";
    case WeightGroup::LinearAttention: return "linear attention";
    case WeightGroup::Mlp: return "mlp";
    case WeightGroup::Norms: return "layer norms";
  }
  return "?";
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace tandem::model
