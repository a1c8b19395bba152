#include "scheduler/books.h"

#include <fmt/format.h>

namespace tandem::scheduler {

Books::Books(std::int32_t slots, std::int32_t pages) : slots_(slots), pages_(pages) {
  for (std::int32_t i = 0; i < slots; ++i) free_slots_.insert(SlotId{i});
  for (std::int32_t i = 0; i < pages; ++i) free_pages_.insert(PageId{i});
}

Result<Books::Held> Books::admit(RequestId request, std::int32_t pages) {
  if (held_.contains(request))
    return fail(ErrorKind::Duplicate, fmt::format("[books] request {} holds a slot already", request.value));
  if (free_slots_.empty() || free_pages() < pages)
    return fail(ErrorKind::Capacity, fmt::format("[books] request {} needs 1 slot and {} pages, {} and {} are free",
                                                 request.value, pages, free_slots(), free_pages()));
  Held held;
  held.slot = *free_slots_.begin();
  free_slots_.erase(free_slots_.begin());
  held.pages.reserve(static_cast<std::size_t>(pages));
  for (std::int32_t i = 0; i < pages; ++i) {
    held.pages.push_back(*free_pages_.begin());
    free_pages_.erase(free_pages_.begin());
  }
  held_.emplace(request, held);
  return held;
}

Result<void> Books::release(RequestId request) {
  const auto at = held_.find(request);
  if (at == held_.end())
    return fail(ErrorKind::NotHeld, fmt::format("[books] request {} holds neither slot nor pages", request.value));
  free_slots_.insert(at->second.slot);
  free_pages_.insert(at->second.pages.begin(), at->second.pages.end());
  held_.erase(at);
  return {};
}

Result<void> Books::check_idle() const {
  if (held_.empty() && free_slots() == slots_ && free_pages() == pages_) return {};
  return fail(ErrorKind::Corrupt,
              fmt::format("[books] idle, but {} requests hold something: {} of {} slots and {} of {} pages are free",
                          held_.size(), free_slots(), slots_, free_pages(), pages_));
}

}  // namespace tandem::scheduler
