#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"

namespace tandem::model {

// What a text tensor is for (spec 2.2). The order is the one in which a rank loads them.
enum class Role : std::uint8_t {
  Embedding,
  Head,  // untied checkpoints only
  FinalNorm,
  InputNorm,
  PostNorm,
  Gate,
  Up,
  Down,
  // Full attention.
  Query,  // per head 256 query rows, then 256 gate rows
  Key,
  Value,
  AttentionOut,
  QueryNorm,
  KeyNorm,
  // Linear attention.
  InQkv,  // q of all key heads | k of all key heads | v of all value heads
  InZ,
  InB,
  InA,
  Conv,
  DtBias,
  ALog,
  GatedNorm,
  DeltaOut,
};

// How `inspect` adds tensors up.
enum class WeightGroup : std::uint8_t { Embedding, Head, FullAttention, LinearAttention, Mlp, Norms };

struct TensorSpec {
  Role role;
  int layer = -1;                   // -1: not of a layer
  std::string name;                 // with the canonical prefix "model.language_model."
  std::vector<std::int64_t> shape;  // as in the file
  bool float32 = false;             // published as F32; BF16 is accepted too. All others are BF16

  // As a matrix: shape[0] rows of everything else ([C,1,4] has 4 columns; a vector has 1).
  [[nodiscard]] std::int64_t rows() const { return shape[0]; }
  [[nodiscard]] std::int64_t cols() const;
  [[nodiscard]] std::int64_t elements() const { return rows() * cols(); }
  [[nodiscard]] std::int64_t bytes() const { return elements() * (float32 ? 4 : 2); }
};

inline constexpr std::string_view kNestedPrefix = "model.language_model.";
inline constexpr std::string_view kFlatPrefix = "model.";

// Every tensor that the text model needs, layer by layer. The geometry is checked.
[[nodiscard]] std::vector<TensorSpec> text_tensors(const Geometry& geometry);

[[nodiscard]] TensorSpec tensor_spec(const Geometry& geometry, Role role, int layer);
[[nodiscard]] WeightGroup group(Role role);
[[nodiscard]] std::string_view name(WeightGroup group);

// "[1024, 2560]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace tandem::model
