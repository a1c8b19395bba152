#pragma once

#include <cstddef>

#include "base/ids.h"
#include "base/result.h"
#include "memory/pool_layout.h"
#include "model/pool_views.h"
#include "ops/backend.h"

namespace tandem::memory {

// The bytes of a rank's KV pages and state slots. Page `pages` and slot `slots` are one more than asked
// for: they take the writes of padding rows. Everything is zero at first; nothing ever moves.
//
// Thread: the rank's. The memory is the backend's and lives as long as it.
class Pools {
 public:
  // Error: Capacity, from Backend::allocate.
  [[nodiscard]] static Result<Pools> make(ops::Backend& backend, const model::Geometry& geometry,
                                          const model::Partition& partition, int pages, int slots);

  [[nodiscard]] model::PoolViews views() const;

  [[nodiscard]] int pages() const { return pages_; }
  [[nodiscard]] int slots() const { return slots_; }

  // The raw bytes of a page or slot, 0..pages or 0..slots, for scrubbing, snapshots and tests.
  [[nodiscard]] std::byte* page(PageId page) const;
  [[nodiscard]] std::byte* slot(SlotId slot) const;
  [[nodiscard]] std::int64_t page_bytes() const { return kv_.page_bytes(); }
  [[nodiscard]] std::int64_t slot_bytes() const { return state_.slot_bytes(); }

  // Debug (R4.5): every number of it becomes NaN, so that a stale read shows.
  [[nodiscard]] Result<void> fill_with_nan(PageId page);
  [[nodiscard]] Result<void> fill_with_nan(SlotId slot);
  // After a non-finite result (R2.7): zeros again.
  [[nodiscard]] Result<void> scrub(PageId page);
  [[nodiscard]] Result<void> scrub(SlotId slot);

 private:
  Pools(ops::Backend& backend, KvLayout kv, StateLayout state, int pages, int slots)
      : backend_(&backend), kv_(kv), state_(state), pages_(pages), slots_(slots) {}

  ops::Backend* backend_;
  KvLayout kv_;
  StateLayout state_;
  int pages_;
  int slots_;
  std::byte* page_memory_ = nullptr;  // [pages + 1, page_bytes]; null without full-attention layers
  std::byte* slot_memory_ = nullptr;  // [slots + 1, slot_bytes]; null without linear-attention layers
};

}  // namespace tandem::memory
