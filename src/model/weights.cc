#include "model/weights.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

namespace tandem::model {
namespace {

// Reads tensors of one checkpoint through one partition into one backend.
class Loader {
 public:
  Loader(ops::Backend& backend, const Checkpoint& checkpoint, const Partition& partition, VectorRounding rounding)
      : backend_(backend), checkpoint_(checkpoint), partition_(partition), rounding_(rounding) {}

  // This rank's part as matrices inside the mapped file, one per row range.
  [[nodiscard]] std::vector<ops::HostMatrix> matrices(Role role, int layer) const {
    const TensorSpec spec = tensor_spec(checkpoint_.geometry(), role, layer);
    const auto* data = reinterpret_cast<const bf16*>(checkpoint_.tensor(role, layer).data.data());
    const Share share = partition_.share(spec);
    std::vector<ops::HostMatrix> parts;
    for (const Range& rows : share.rows) {
      parts.push_back({.data = data + rows.begin * spec.cols() + share.cols.begin,
                       .rows = rows.count,
                       .cols = share.cols.count,
                       .row_stride = spec.cols()});
    }
    return parts;
  }

  [[nodiscard]] Result<ops::LinearWeight> linear(std::initializer_list<Role> roles, int layer,
                                                 std::string_view what) {
    std::vector<ops::HostMatrix> parts;
    for (const Role role : roles) {
      for (const ops::HostMatrix& part : matrices(role, layer)) parts.push_back(part);
    }
    return backend_.load_linear(parts, label(layer, what));
  }

  [[nodiscard]] Result<const float*> vector(Role role, int layer, std::string_view what) {
    const TensorSpec spec = tensor_spec(checkpoint_.geometry(), role, layer);
    const StoredTensor& tensor = checkpoint_.tensor(role, layer);
    const bool as_float = tensor.dtype == kF32;
    const Share share = partition_.share(spec);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(share.elements()));
    for (const Range& rows : share.rows) {
      for (std::int64_t i = rows.begin * spec.cols(); i < (rows.begin + rows.count) * spec.cols(); ++i) {
        float value = 0.0f;
        if (as_float) {
          std::memcpy(&value, tensor.data.data() + i * 4, 4);
          if (rounding_ == VectorRounding::Bf16) value = round_bf16(value);
        } else {
          bf16 narrow;
          std::memcpy(&narrow, tensor.data.data() + i * 2, 2);
          value = to_float(narrow);
        }
        values.push_back(value);
      }
    }
    return backend_.load_vector(values, label(layer, what));
  }

  [[nodiscard]] Result<LayerWeights> layer(int index) {
    LayerWeights weights;
    TANDEM_ASSIGN(weights.input_norm, vector(Role::InputNorm, index, "input_layernorm"));
    TANDEM_ASSIGN(weights.post_norm, vector(Role::PostNorm, index, "post_attention_layernorm"));
    if (checkpoint_.geometry().layers[static_cast<std::size_t>(index)] == LayerKind::Full) {
      TANDEM_ASSIGN(weights.mixer, full(index));
    } else {
      TANDEM_ASSIGN(weights.mixer, delta(index));
    }
    const ops::HostMatrix gate = matrices(Role::Gate, index).front();
    const ops::HostMatrix up = matrices(Role::Up, index).front();
    TANDEM_ASSIGN(weights.gate_up, backend_.load_gate_up(gate, up, label(index, "mlp.gate_up_proj")));
    TANDEM_ASSIGN(weights.down, linear({Role::Down}, index, "mlp.down_proj"));
    return weights;
  }

  void will_need(const std::vector<TensorSpec>& tensors, int layer) const {
    for (const TensorSpec& tensor : tensors) {
      if (tensor.layer == layer && is_loaded(tensor, partition_)) checkpoint_.will_need(tensor.role, tensor.layer);
    }
  }

 private:
  [[nodiscard]] Result<FullMixer> full(int index) {
    FullMixer mixer;
    TANDEM_ASSIGN(mixer.qkv, linear({Role::Query, Role::Key, Role::Value}, index, "self_attn.qkv_proj"));
    TANDEM_ASSIGN(mixer.out, linear({Role::AttentionOut}, index, "self_attn.o_proj"));
    TANDEM_ASSIGN(mixer.q_norm, vector(Role::QueryNorm, index, "self_attn.q_norm"));
    TANDEM_ASSIGN(mixer.k_norm, vector(Role::KeyNorm, index, "self_attn.k_norm"));
    return mixer;
  }

  [[nodiscard]] Result<LinearMixer> delta(int index) {
    LinearMixer mixer;
    TANDEM_ASSIGN(mixer.in, linear({Role::InQkv, Role::InZ, Role::InB, Role::InA}, index, "linear_attn.in_proj"));
    TANDEM_ASSIGN(mixer.out, linear({Role::DeltaOut}, index, "linear_attn.out_proj"));
    TANDEM_ASSIGN(mixer.params.conv_weight, vector(Role::Conv, index, "linear_attn.conv1d"));
    TANDEM_ASSIGN(mixer.params.a_log, vector(Role::ALog, index, "linear_attn.A_log"));
    TANDEM_ASSIGN(mixer.params.dt_bias, vector(Role::DtBias, index, "linear_attn.dt_bias"));
    TANDEM_ASSIGN(mixer.params.norm_weight, vector(Role::GatedNorm, index, "linear_attn.norm"));
    return mixer;
  }

  static std::string label(int layer, std::string_view what) {
    return layer < 0 ? std::string(what) : fmt::format("layers.{}.{}", layer, what);
  }

  ops::Backend& backend_;
  const Checkpoint& checkpoint_;
  const Partition& partition_;
  const VectorRounding rounding_;
};

}  // namespace

bool is_loaded(const TensorSpec& tensor, const Partition& partition) {
  return tensor.role != Role::Head || partition.has_head();
}

Result<Weights> Weights::load(ops::Backend& backend, const Checkpoint& checkpoint, const Partition& partition,
                              VectorRounding rounding, const LoadProgress& progress) {
  const Geometry& geometry = checkpoint.geometry();
  const std::vector<TensorSpec> tensors = text_tensors(geometry);
  std::int64_t done = 0, total = 0;
  const auto bytes_of = [&](int layer) {
    std::int64_t sum = 0;
    for (const TensorSpec& tensor : tensors) {
      if (tensor.layer == layer && is_loaded(tensor, partition)) {
        sum += partition.share(tensor).elements() *
               checkpoint.tensor(tensor.role, tensor.layer).dtype.bits / 8;
      }
    }
    return sum;
  };
  for (int layer = -1; layer < geometry.layer_count(); ++layer) total += bytes_of(layer);
  const auto report = [&](int layer) {
    done += bytes_of(layer);
    if (progress) progress(done, total);
  };

  Loader loader(backend, checkpoint, partition, rounding);
  Weights weights;
  // One layer ahead of the one that is packed: the disk and the packing overlap.
  loader.will_need(tensors, -1);
  loader.will_need(tensors, 0);
  TANDEM_ASSIGN(weights.embedding, backend.load_embedding(loader.matrices(Role::Embedding, -1).front()));
  if (partition.has_head()) {
    TANDEM_ASSIGN(weights.head,
                  geometry.tied ? backend.tie_head(weights.embedding) : loader.linear({Role::Head}, -1, "lm_head"));
  }
  TANDEM_ASSIGN(weights.final_norm, loader.vector(Role::FinalNorm, -1, "norm"));
  report(-1);
  for (int layer = 0; layer < geometry.layer_count(); ++layer) {
    loader.will_need(tensors, layer + 1);
    TANDEM_ASSIGN(LayerWeights loaded, loader.layer(layer));
    weights.layers.push_back(std::move(loaded));
    report(layer);
  }
  return weights;
}

}  // namespace tandem::model
