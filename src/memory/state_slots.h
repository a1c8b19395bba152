#pragma once

#include <map>
#include <set>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::memory {

// Which request holds which state slot. Numbers only: the bytes (4B on one rank: 51,511,296 a slot) lie
// in each rank's StatePool under the same SlotId.
//
// Thread: scheduler, no locks. Lifetime: the engine's. A slot never moves.
class StateSlots {
 public:
  // `capacity` >= 1: the minimum over ranks (R5.1). Slot number `capacity` is for padding rows.
  explicit StateSlots(int capacity);
  StateSlots(const StateSlots&) = delete;
  StateSlots& operator=(const StateSlots&) = delete;

  // The lowest free slot, so that a replay gets the same numbers.
  // Errors: Capacity (the request keeps waiting), Duplicate (it holds one: a bug).
  [[nodiscard]] Result<SlotId> acquire(RequestId request);

  // Only after every rank has acknowledged the drop (R4.3).
  // Error: NotHeld, which is divergence: the caller poisons.
  [[nodiscard]] Result<void> release(RequestId request);

  // slots[i] = slot of rows[i]; equal sizes, spans used during the call only.
  // Error: NotHeld, naming the first such request; `slots` is then unspecified.
  [[nodiscard]] Result<void> find(std::span<const RequestId> rows, std::span<SlotId> slots) const;

  // For the idle tick: held + free = capacity. Error: Corrupt, with the sums.
  [[nodiscard]] Result<void> check() const;

  [[nodiscard]] int capacity() const { return capacity_; }
  [[nodiscard]] int held() const { return static_cast<int>(held_.size()); }
  [[nodiscard]] int free() const { return static_cast<int>(free_.size()); }

 private:
  const int capacity_;
  std::set<SlotId> free_;
  std::map<RequestId, SlotId> held_;
};

}  // namespace tandem::memory
