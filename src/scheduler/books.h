#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::scheduler {

// Who holds which state slot and which KV pages. A request gets both for its whole life at admission
// (R5.2) and gives both back after its drop (R4.3), so it can never run out of either in between.
//
// Thread: the scheduler's. Numbers only; the bytes are the ranks'.
class Books {
 public:
  Books(std::int32_t slots, std::int32_t pages);
  Books(const Books&) = delete;

  struct Held {
    SlotId slot;
    std::vector<PageId> pages;  // by position in the request
  };
  // The lowest free slot and the lowest free pages, so that a replay gets the same numbers.
  // Errors: Capacity (does not fit now), Duplicate (it holds some: a bug).
  [[nodiscard]] Result<Held> admit(RequestId request, std::int32_t pages);
  // Error: NotHeld.
  [[nodiscard]] Result<void> release(RequestId request);

  [[nodiscard]] std::int32_t free_slots() const { return static_cast<std::int32_t>(free_slots_.size()); }
  [[nodiscard]] std::int32_t free_pages() const { return static_cast<std::int32_t>(free_pages_.size()); }

  // For the idle tick: nothing is held, and everything is free. Error: Corrupt, with the sums.
  [[nodiscard]] Result<void> check_idle() const;

 private:
  const std::int32_t slots_, pages_;
  std::set<SlotId> free_slots_;
  std::set<PageId> free_pages_;
  std::map<RequestId, Held> held_;
};

}  // namespace tandem::scheduler
