#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/geometry.h"
#include "model/tensors.h"
#include "ops/delta.h"

namespace tandem::model {

// How linear attention lives on several ranks: whole on each (no all-reduce after out_proj), or cut by head.
enum class LinearAttention : std::uint8_t { Replicated, Sharded };

struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Which part of a tensor a rank owns: these row ranges one after another, each with these columns.
// Rows and columns are those of TensorSpec.
struct Share {
  std::vector<Range> rows;
  Range cols;
  [[nodiscard]] std::int64_t row_count() const;
  [[nodiscard]] std::int64_t elements() const { return row_count() * cols.count; }
};

// One rank's part of the model (rules R7.1 to R7.5): which heads it has, and which part of every tensor.
// Every tensor is read through it; in a world of one every share is the whole tensor.
// Plain data, copyable; any thread.
class Partition {
 public:
  // Checks R6.2: query heads, kv heads (or whole kv heads repeated on world / kv_heads ranks), intermediate
  // size and, when sharded, the heads of linear attention divide over the ranks.
  // Error: Unsupported, "[tp] field = value does not divide over N ranks; this model runs on 1, 2, 4 or 8".
  [[nodiscard]] static Result<Partition> make(const Geometry& geometry, RankId rank, int world, LinearAttention mode);

  // Degrees up to 16 that `make` accepts.
  [[nodiscard]] static std::vector<int> valid_degrees(const Geometry& geometry, LinearAttention mode);

  [[nodiscard]] RankId rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] LinearAttention linear_attention() const { return mode_; }

  // Of this rank.
  [[nodiscard]] int query_heads() const { return query_heads_; }
  [[nodiscard]] int kv_heads() const { return kv_heads_; }
  [[nodiscard]] int intermediate() const { return intermediate_; }
  [[nodiscard]] ops::DeltaShape delta() const { return delta_; }
  [[nodiscard]] int attention_width() const;  // outputs of q|k|v
  // Whether out_proj's output is a partial sum.
  [[nodiscard]] bool delta_is_partial() const { return world_ > 1 && mode_ == LinearAttention::Sharded; }
  // Whether this rank runs head and sampler (R1.7).
  [[nodiscard]] bool has_head() const { return rank_.value == 0; }

  [[nodiscard]] Share share(const TensorSpec& tensor) const;

 private:
  Partition() = default;

  Geometry geometry_;
  RankId rank_;
  int world_ = 1;
  LinearAttention mode_ = LinearAttention::Replicated;
  int query_heads_ = 0;
  int kv_heads_ = 0;
  int first_kv_head_ = 0;
  int intermediate_ = 0;
  ops::DeltaShape delta_;
  int first_key_head_ = 0;
  int first_value_head_ = 0;
};

[[nodiscard]] std::string_view name(LinearAttention mode);  // "replicated", "sharded"

}  // namespace tandem::model
