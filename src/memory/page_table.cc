#include "memory/page_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/step_view.h"

namespace tandem::memory {

std::int64_t pages_for(std::int64_t tokens) { return (tokens + ops::kPageTokens - 1) / ops::kPageTokens; }

std::int64_t lifetime_tokens(std::int64_t prompt, std::int64_t max_tokens) {
  return prompt + std::max<std::int64_t>(max_tokens, 1) - 1;
}

PageTable::PageTable(int capacity) : capacity_(capacity) {
  for (std::int32_t page = 0; page < capacity; ++page) free_.insert(PageId{page});
}

Result<void> PageTable::reserve(RequestId request, std::int64_t tokens) {
  if (requests_.contains(request)) {
    return fail(ErrorKind::Duplicate, fmt::format("[page_table] request {} has pages set aside already", request.value));
  }
  const std::int64_t wanted = pages_for(tokens);
  if (wanted > unreserved()) {
    return fail(ErrorKind::Capacity,
                fmt::format("[page_table] {} tokens need {} pages of {} tokens; {} of {} are not set aside", tokens, wanted,
                            ops::kPageTokens, unreserved(), capacity_));
  }
  reserved_ += static_cast<int>(wanted);
  requests_.emplace(request, Holding{.reserved = static_cast<int>(wanted)});
  return {};
}

Result<std::span<const PageId>> PageTable::extend(RequestId request, std::int64_t tokens) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) {
    return fail(ErrorKind::NotHeld, fmt::format("[page_table] request {} has nothing set aside", request.value));
  }
  Holding& holding = found->second;
  const std::int64_t wanted = pages_for(tokens);
  if (wanted > holding.reserved) {
    return fail(ErrorKind::Capacity, fmt::format("[page_table] request {} asks for {} pages and set {} aside", request.value,
                                                 wanted, holding.reserved));
  }
  const std::size_t before = holding.pages.size();
  while (static_cast<std::int64_t>(holding.pages.size()) < wanted) {
    holding.pages.push_back(*free_.begin());  // never empty: reservations add up to at most the capacity
    free_.erase(free_.begin());
    ++held_;
  }
  return std::span<const PageId>(holding.pages).subspan(before);
}

std::span<const PageId> PageTable::pages(RequestId request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? std::span<const PageId>{} : std::span<const PageId>(found->second.pages);
}

Result<void> PageTable::release(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) {
    return fail(ErrorKind::NotHeld, fmt::format("[page_table] request {} has nothing set aside", request.value));
  }
  const Holding& holding = found->second;
  free_.insert(holding.pages.begin(), holding.pages.end());
  held_ -= static_cast<int>(holding.pages.size());
  reserved_ -= holding.reserved;
  requests_.erase(found);
  return {};
}

Result<void> PageTable::check() const {
  std::set<PageId> all = free_;
  int in_tables = 0, set_aside = 0;
  for (const auto& [request, holding] : requests_) {
    all.insert(holding.pages.begin(), holding.pages.end());
    in_tables += static_cast<int>(holding.pages.size());
    set_aside += holding.reserved;
  }
  if (in_tables == held_ && set_aside == reserved_ && reserved_ <= capacity_ && held_ + free() == capacity_ &&
      static_cast<int>(all.size()) == capacity_) {
    return {};
  }
  return fail(ErrorKind::Corrupt, fmt::format("[page_table] {} held + {} free, {} set aside, capacity {}", in_tables, free(),
                                              set_aside, capacity_));
}

}  // namespace tandem::memory
