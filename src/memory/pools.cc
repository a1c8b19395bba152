#include "memory/pools.h"

#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::memory {

Result<Pools> Pools::make(ops::Backend& backend, const model::Geometry& geometry, const model::Partition& partition,
                          int pages, int slots) {
  Pools pools(backend, KvLayout(geometry, partition), StateLayout(geometry, partition), pages, slots);
  const auto page_total = static_cast<std::size_t>((std::int64_t{pages} + 1) * pools.page_bytes());
  const auto slot_total = static_cast<std::size_t>((std::int64_t{slots} + 1) * pools.slot_bytes());
  if (page_total > 0) {
    TANDEM_ASSIGN(void* const memory, backend.allocate(page_total, ops::MemoryUse::KvPages, "KV pages"));
    pools.page_memory_ = static_cast<std::byte*>(memory);
  }
  if (slot_total > 0) {
    TANDEM_ASSIGN(void* const memory, backend.allocate(slot_total, ops::MemoryUse::StateSlots, "state slots"));
    pools.slot_memory_ = static_cast<std::byte*>(memory);
  }
  return pools;
}

model::PoolViews Pools::views() const {
  model::PoolViews views;
  for (int layer = 0; layer < kv_.layers; ++layer) {
    views.kv.push_back({.base = reinterpret_cast<bf16*>(page_memory_) + layer * kv_.layer_elements(),
                        .page_stride = kv_.page_elements(),
                        .v_offset = kv_.half_elements(),
                        .kv_heads = kv_.kv_heads});
  }
  for (int layer = 0; layer < state_.layers; ++layer) {
    std::byte* const conv = slot_memory_ + state_.states_bytes() + layer * state_.conv_elements() * 2;
    std::byte* const state = slot_memory_ + layer * state_.state_elements() * 4;
    views.state.push_back({.conv = reinterpret_cast<bf16*>(conv),
                           .conv_stride = slot_bytes() / 2,
                           .state = reinterpret_cast<float*>(state),
                           .state_stride = slot_bytes() / 4});
  }
  return views;
}

std::byte* Pools::page(PageId page) const { return page_memory_ + page.value * page_bytes(); }
std::byte* Pools::slot(SlotId slot) const { return slot_memory_ + slot.value * slot_bytes(); }

// All bits set is NaN in bf16 as in float32.
Result<void> Pools::fill_with_nan(PageId id) {
  return page_memory_ == nullptr ? Result<void>{}
                                 : backend_->fill_bytes(page(id), 0xff, static_cast<std::size_t>(page_bytes()));
}

Result<void> Pools::fill_with_nan(SlotId id) {
  return slot_memory_ == nullptr ? Result<void>{}
                                 : backend_->fill_bytes(slot(id), 0xff, static_cast<std::size_t>(slot_bytes()));
}

Result<void> Pools::scrub(PageId id) {
  return page_memory_ == nullptr ? Result<void>{}
                                 : backend_->fill_bytes(page(id), 0, static_cast<std::size_t>(page_bytes()));
}

Result<void> Pools::scrub(SlotId id) {
  return slot_memory_ == nullptr ? Result<void>{}
                                 : backend_->fill_bytes(slot(id), 0, static_cast<std::size_t>(slot_bytes()));
}

}  // namespace tandem::memory
