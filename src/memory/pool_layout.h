#pragma once

#include <cstdint>

#include "model/geometry.h"
#include "model/partition.h"

namespace tandem::memory {

// Where things lie inside one KV page and one state slot of a rank. The planner counts with it and the
// pools address with it.

// A page: for every full-attention layer K, then V, each [kv heads, 64, 256] bf16.
struct KvLayout {
  int layers = 0;
  int kv_heads = 0;  // of this rank

  KvLayout(const model::Geometry& geometry, const model::Partition& partition);
  [[nodiscard]] std::int64_t half_elements() const;  // K, or V, of one layer
  [[nodiscard]] std::int64_t layer_elements() const { return 2 * half_elements(); }
  [[nodiscard]] std::int64_t page_elements() const { return layers * layer_elements(); }
  [[nodiscard]] std::int64_t page_bytes() const { return page_elements() * 2; }
};

// A slot: the recurrent states of all linear-attention layers, [Hv, 128, 128] float32 each, then their
// conv windows, [C, 3] bf16 each. All offsets are multiples of 256 bytes.
struct StateLayout {
  int layers = 0;
  ops::DeltaShape shape;  // of this rank

  StateLayout(const model::Geometry& geometry, const model::Partition& partition);
  [[nodiscard]] std::int64_t state_elements() const;  // float32, one layer
  [[nodiscard]] std::int64_t conv_elements() const;   // bf16, one layer
  [[nodiscard]] std::int64_t states_bytes() const { return layers * state_elements() * 4; }
  [[nodiscard]] std::int64_t slot_bytes() const { return states_bytes() + layers * conv_elements() * 2; }
};

}  // namespace tandem::memory
