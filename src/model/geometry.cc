#include "model/geometry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {

int Geometry::count(LayerKind kind) const { return static_cast<int>(std::count(layers.begin(), layers.end(), kind)); }
int Geometry::query_width() const { return query_heads * ops::kHeadDim; }
int Geometry::kv_width() const { return kv_heads * ops::kHeadDim; }
int Geometry::key_width() const { return key_heads * ops::kDeltaHeadDim; }
int Geometry::value_width() const { return value_heads * ops::kDeltaHeadDim; }
int Geometry::conv_channels() const { return 2 * key_width() + value_width(); }

std::vector<LayerKind> layer_pattern(int layers, int full_attention_interval) {
  std::vector<LayerKind> kinds(static_cast<std::size_t>(layers), LayerKind::Linear);
  for (int i = 0; i < layers; ++i) {
    if ((i + 1) % full_attention_interval == 0) kinds[static_cast<std::size_t>(i)] = LayerKind::Full;
  }
  return kinds;
}

Result<Geometry> published(std::string_view size) {
  struct Row {
    std::string_view size;
    int hidden, layers, intermediate, query_heads, kv_heads, value_heads;
    bool tied;
  };
  static constexpr Row kRows[] = {
      {"0.8B", 1024, 24, 3584, 8, 2, 16, true},   {"2B", 2048, 24, 6144, 8, 2, 16, true},
      {"4B", 2560, 32, 9216, 16, 4, 32, true},    {"9B", 4096, 32, 12288, 16, 4, 32, false},
      {"27B", 5120, 64, 17408, 24, 4, 48, false},
  };
  for (const Row& row : kRows) {
    if (row.size != size) continue;
    return Geometry{.name = std::string(size),
                    .hidden = row.hidden,
                    .intermediate = row.intermediate,
                    .query_heads = row.query_heads,
                    .kv_heads = row.kv_heads,
                    .key_heads = 16,
                    .value_heads = row.value_heads,
                    .vocab = 248320,
                    .max_context = 262144,
                    .tied = row.tied,
                    .layers = layer_pattern(row.layers, 4),
                    .eos_ids = {248044}};
  }
  return fail(ErrorKind::NotFound, fmt::format("no published size is called \"{}\"; there are {}", size,
                                               fmt::join(kPublishedSizes, ", ")));
}

Result<void> check_geometry(const Geometry& g, std::string_view where) {
  struct Bound {
    std::string_view field;
    int value, most;
  };
  const Bound bounds[] = {
      {"hidden_size", g.hidden, 1 << 16},
      {"intermediate_size", g.intermediate, 1 << 18},
      {"num_hidden_layers", g.layer_count(), 1 << 10},
      {"num_attention_heads", g.query_heads, 1 << 10},
      {"num_key_value_heads", g.kv_heads, 1 << 10},
      {"linear_num_key_heads", g.key_heads, 1 << 10},
      {"linear_num_value_heads", g.value_heads, 1 << 10},
      {"vocab_size", g.vocab, 1 << 22},
      {"max_position_embeddings", g.max_context, 1 << 24},
  };
  for (const Bound& bound : bounds) {
    if (bound.value >= 1 && bound.value <= bound.most) continue;
    return fail(ErrorKind::Invalid,
                fmt::format("{}: {} = {}; it must lie between 1 and {}", where, bound.field, bound.value, bound.most));
  }
  // Rows of a matrix are read as 16-byte vectors, also from the mapped file.
  for (const Bound& bound : {bounds[0], bounds[1]}) {
    if (bound.value % 8 == 0) continue;
    return fail(ErrorKind::Unsupported,
                fmt::format("{}: {} = {}; it must be a multiple of 8", where, bound.field, bound.value));
  }
  struct Ratio {
    std::string_view many_field;
    int many;
    std::string_view few_field;
    int few;
  };
  for (const Ratio& r : {Ratio{"num_attention_heads", g.query_heads, "num_key_value_heads", g.kv_heads},
                         Ratio{"linear_num_value_heads", g.value_heads, "linear_num_key_heads", g.key_heads}}) {
    if (r.many % r.few == 0) continue;
    return fail(ErrorKind::Invalid, fmt::format("{}: {} = {} must be a multiple of {} = {}", where, r.many_field,
                                                r.many, r.few_field, r.few));
  }
  for (const TokenId id : g.eos_ids) {
    if (id >= 0 && id < g.vocab) continue;
    return fail(ErrorKind::Invalid,
                fmt::format("{}: eos_token_id {} is outside the vocabulary of {}", where, id, g.vocab));
  }
  if (!(g.norm_eps > 0.0f && g.norm_eps < 1.0f)) {
    return fail(ErrorKind::Invalid, fmt::format("{}: rms_norm_eps = {}; it must be more than 0 and less than 1", where, g.norm_eps));
  }
  if (!(g.rope_theta >= 1.0f && g.rope_theta <= 1e12f)) {
    return fail(ErrorKind::Invalid,
                fmt::format("{}: rope_theta = {}; it must lie between 1 and 1e12", where, g.rope_theta));
  }
  return {};
}

}  // namespace tandem::model
