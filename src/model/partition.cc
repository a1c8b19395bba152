#include "model/partition.h"

#include <fmt/format.h>

#include "ops/attention.h"

namespace tandem::model {
namespace {

constexpr int kMostRanks = 16;

struct Obstacle {
  std::string_view field;
  int value;
};

// The first field that keeps the model from running on `world` ranks, or an empty one.
Obstacle obstacle(const Geometry& g, int world, LinearAttention mode) {
  if (g.query_heads % world != 0) return {"num_attention_heads", g.query_heads};
  if (g.kv_heads % world != 0 && world % g.kv_heads != 0) return {"num_key_value_heads", g.kv_heads};
  if (g.intermediate % world != 0) return {"intermediate_size", g.intermediate};
  if (mode == LinearAttention::Sharded) {
    if (g.key_heads % world != 0) return {"linear_num_key_heads", g.key_heads};
    if (g.value_heads % world != 0) return {"linear_num_value_heads", g.value_heads};
  }
  return {};
}

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += i + 1 == numbers.size() ? " or " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text;
}

}  // namespace

std::int64_t Share::row_count() const {
  std::int64_t sum = 0;
  for (const Range& range : rows) sum += range.count;
  return sum;
}

std::vector<int> Partition::valid_degrees(const Geometry& geometry, LinearAttention mode) {
  std::vector<int> degrees;
  for (int world = 1; world <= kMostRanks; ++world) {
    if (obstacle(geometry, world, mode).field.empty()) degrees.push_back(world);
  }
  return degrees;
}

Result<Partition> Partition::make(const Geometry& geometry, RankId rank, int world, LinearAttention mode) {
  if (world < 1 || world > kMostRanks) {
    return fail(ErrorKind::Invalid, fmt::format("[tp] world size {}; it must lie between 1 and {}", world, kMostRanks));
  }
  if (rank.value < 0 || rank.value >= world) {
    return fail(ErrorKind::Invalid, fmt::format("[tp] rank {} of {} ranks; it must lie between 0 and {}", rank.value,
                                                world, world - 1));
  }
  if (const Obstacle found = obstacle(geometry, world, mode); !found.field.empty()) {
    return fail(ErrorKind::Unsupported,
                fmt::format("[tp] {} = {} does not divide over {} ranks; this model runs on {}", found.field,
                            found.value, world, listed(valid_degrees(geometry, mode))),
                std::string(found.field));
  }
  Partition p;
  p.geometry_ = geometry;
  p.rank_ = rank;
  p.world_ = world;
  p.mode_ = mode;
  p.query_heads_ = geometry.query_heads / world;
  if (geometry.kv_heads >= world) {
    p.kv_heads_ = geometry.kv_heads / world;
    p.first_kv_head_ = rank.value * p.kv_heads_;
  } else {  // each kv head stands on world / kv_heads ranks
    p.kv_heads_ = 1;
    p.first_kv_head_ = rank.value / (world / geometry.kv_heads);
  }
  p.intermediate_ = geometry.intermediate / world;
  const int parts = mode == LinearAttention::Sharded ? world : 1;
  const int part = mode == LinearAttention::Sharded ? rank.value : 0;
  p.delta_ = {.key_heads = geometry.key_heads / parts, .value_heads = geometry.value_heads / parts};
  p.first_key_head_ = part * p.delta_.key_heads;
  p.first_value_head_ = part * p.delta_.value_heads;
  return p;
}

int Partition::attention_width() const { return 2 * (query_heads_ + kv_heads_) * ops::kHeadDim; }

Share Partition::share(const TensorSpec& tensor) const {
  const Range all_rows{0, tensor.rows()};
  const Range all_cols{0, tensor.cols()};
  const auto heads = [](int first, int count, int width) {
    return Range{std::int64_t{first} * width, std::int64_t{count} * width};
  };
  const Range keys = heads(first_key_head_, delta_.key_heads, ops::kDeltaHeadDim);
  const Range values = heads(first_value_head_, delta_.value_heads, ops::kDeltaHeadDim);
  const Range value_heads{first_value_head_, delta_.value_heads};
  const Range channels = heads(rank_.value * intermediate_, intermediate_, 1);

  switch (tensor.role) {
    case Role::Gate:
    case Role::Up: return {{channels}, all_cols};
    case Role::Down: return {{all_rows}, channels};
    // A head's 256 query rows and its 256 gate rows stay together.
    case Role::Query: return {{heads(rank_.value * query_heads_, query_heads_, 2 * ops::kHeadDim)}, all_cols};
    case Role::Key:
    case Role::Value: return {{heads(first_kv_head_, kv_heads_, ops::kHeadDim)}, all_cols};
    case Role::AttentionOut: return {{all_rows}, heads(rank_.value * query_heads_, query_heads_, ops::kHeadDim)};
    // q | k | v are three ranges, each cut by head: cutting the fused rows evenly would mix them.
    case Role::InQkv:
    case Role::Conv: {
      if (delta_.key_heads == geometry_.key_heads) return {{all_rows}, all_cols};
      const std::int64_t width = geometry_.key_width();
      return {{keys, {width + keys.begin, keys.count}, {2 * width + values.begin, values.count}}, all_cols};
    }
    case Role::InZ: return {{values}, all_cols};
    case Role::InB:
    case Role::InA:
    case Role::DtBias:
    case Role::ALog: return {{value_heads}, all_cols};
    case Role::DeltaOut: return {{all_rows}, values};
    case Role::Embedding:
    case Role::Head:
    case Role::FinalNorm:
    case Role::InputNorm:
    case Role::PostNorm:
    case Role::QueryNorm:
    case Role::KeyNorm:
    case Role::GatedNorm: break;
  }
  return {{all_rows}, all_cols};
}

std::string_view name(LinearAttention mode) { return mode == LinearAttention::Sharded ? "sharded" : "replicated"; }

}  // namespace tandem::model
