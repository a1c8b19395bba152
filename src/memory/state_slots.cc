#include "memory/state_slots.h"

#include <fmt/format.h>

#include <cstdlib>

namespace tandem::memory {

StateSlots::StateSlots(int capacity) : capacity_(capacity) {
  for (std::int32_t slot = 0; slot < capacity; ++slot) free_.insert(SlotId{slot});
}

Result<SlotId> StateSlots::acquire(RequestId request) {
  if (const auto held = held_.find(request); held != held_.end()) {
    return fail(ErrorKind::Duplicate, fmt::format("[state_slots] request {} already holds slot {}", request.value,
                                                  held->second.value));
  }
  if (free_.empty()) {
    return fail(ErrorKind::Capacity, fmt::format("[state_slots] all {} slots are held", capacity_));
  }
  const SlotId slot = *free_.begin();
  free_.erase(free_.begin());
  held_.emplace(request, slot);
  return slot;
}

Result<void> StateSlots::release(RequestId request) {
  const auto held = held_.find(request);
  if (held == held_.end()) {
    return fail(ErrorKind::NotHeld, fmt::format("[state_slots] request {} holds no slot", request.value));
  }
  free_.insert(held->second);
  held_.erase(held);
  return {};
}

Result<void> StateSlots::find(std::span<const RequestId> rows, std::span<SlotId> slots) const {
  if (rows.size() != slots.size()) std::abort();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto held = held_.find(rows[i]);
    if (held == held_.end()) {
      return fail(ErrorKind::NotHeld, fmt::format("[state_slots] request {} holds no slot", rows[i].value));
    }
    slots[i] = held->second;
  }
  return {};
}

Result<void> StateSlots::check() const {
  std::set<SlotId> all = free_;
  for (const auto& [request, slot] : held_) all.insert(slot);
  if (static_cast<int>(all.size()) == capacity_ && held() + free() == capacity_) return {};
  return fail(ErrorKind::Corrupt, fmt::format("[state_slots] {} held + {} free, capacity {}", held(), free(), capacity_));
}

}  // namespace tandem::memory
