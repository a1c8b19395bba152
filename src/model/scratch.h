#pragma once

#include <cstddef>
#include <cstdint>

#include "model/geometry.h"
#include "model/partition.h"
#include "ops/step_view.h"
#include "ops/view.h"

namespace tandem::model {

// Gives out pieces of one piece of memory, each aligned to 256 bytes. With base = nullptr it only counts:
// the planner and the rank run the same code, so the plan cannot differ from the allocation.
class Arena {
 public:
  explicit Arena(std::byte* base = nullptr) : base_(base) {}

  template <class T>
  [[nodiscard]] T* take(std::int64_t elements) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<std::size_t>(elements) * sizeof(T) + 255) / 256 * 256;
    if (used_ > most_) most_ = used_;
    return piece;
  }

  // What is taken after rewind(mark()) lies where the things taken since mark() lay.
  [[nodiscard]] std::size_t mark() const { return used_; }
  void rewind(std::size_t mark) { used_ = mark; }

  [[nodiscard]] std::size_t bytes() const { return most_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
  std::size_t most_ = 0;
};

// The intermediate values of one step of a rank. T = limits.max_tokens; a step uses the first rows.
// The four groups at the end are never alive together and share their memory.
struct Scratch {
  ops::View<bf16, 2> residual;  // [T, H]
  ops::View<bf16, 2> hidden;    // [T, H] input of the next block
  ops::View<bf16, 2> partial;   // [T, H] this rank's share of a block's output
  std::int32_t* ids = nullptr;  // [T] chosen ids, one per logit row

  struct Full {
    ops::View<bf16, 2> projected;  // [T, 2 (nh + nkv) 256]
    ops::View<bf16, 3> q;          // [T, nh, 256]
    ops::View<bf16, 3> y;          // [T, nh, 256]
  } full;
  struct Linear {
    ops::View<bf16, 2> projected;  // [T, C + V + 2 Hv]
    ops::View<float, 3> q, k;      // [T, Hk, 128]
    ops::View<bf16, 3> v, y;       // [T, Hv, 128]
    ops::View<float, 2> beta, decay;  // [T, Hv]
  } linear;
  struct Mlp {
    ops::View<bf16, 2> gate_up;  // [T, 2 I]
    ops::View<bf16, 2> y;        // [T, I]
  } mlp;
  ops::View<float, 2> logits;    // [max_logit_rows, V], rank 0 only

  [[nodiscard]] static Scratch lay_out(Arena& arena, const Geometry& geometry, const Partition& partition,
                                       const ops::StepLimits& limits);
  // Bytes that lay_out takes.
  [[nodiscard]] static std::size_t bytes(const Geometry& geometry, const Partition& partition,
                                         const ops::StepLimits& limits);
};

}  // namespace tandem::model
