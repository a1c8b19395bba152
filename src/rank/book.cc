#include "rank/book.h"

#include <fmt/format.h>

#include <string>

namespace tandem::rank {

Book::Book(int slots, int pages) : slot_owner_(slots), page_owner_(pages) {}

Result<void> Book::apply(const Step& step) {
  int index = 0;
  for (const Row& row : step.rows) TANDEM_TRY(apply(row, index++));
  return {};
}

Result<void> Book::apply(const Row& row, int index) {
  const auto diverges = [&](std::string what) {
    return fail(ErrorKind::Protocol, fmt::format("diverges from the controller: row {}, request {} {}", index,
                                                 row.request.value, what));
  };
  const auto slot = static_cast<std::size_t>(row.slot.value);
  if (slot >= slot_owner_.size())
    return diverges(fmt::format("names slot {} of {}", row.slot.value, slot_owner_.size()));

  auto found = requests_.find(row.request);
  if (found == requests_.end()) {
    if (row.base_pos != 0) return diverges(fmt::format("comes in at position {}, not 0", row.base_pos));
    if (slot_owner_[slot].value != 0) {
      return diverges(fmt::format("names slot {}, which request {} holds", slot, slot_owner_[slot].value));
    }
    slot_owner_[slot] = row.request;
    found = requests_.emplace(row.request, Binding{.slot = row.slot}).first;
  }
  Binding& binding = found->second;
  if (binding.slot != row.slot) {
    return diverges(fmt::format("names slot {} but is bound to slot {}", slot, binding.slot.value));
  }
  if (row.base_pos != binding.next_pos) {
    return diverges(fmt::format("goes on at position {} instead of {}", row.base_pos, binding.next_pos));
  }
  if (binding.prompt_ended != (row.kind == ops::RowKind::Decode)) {
    return diverges(binding.prompt_ended ? "brings a prompt chunk after its prompt has ended"
                                         : "decodes before its prompt has ended");
  }
  binding.known = static_cast<std::int32_t>(binding.pages.size());
  for (const PageId page : row.new_pages) {
    const auto at = static_cast<std::size_t>(page.value);
    if (at >= page_owner_.size())
      return diverges(fmt::format("adds page {} of {}", page.value, page_owner_.size()));
    if (page_owner_[at].value != 0) {
      return diverges(fmt::format("adds page {}, which request {} holds", page.value, page_owner_[at].value));
    }
    page_owner_[at] = row.request;
    binding.pages.push_back(page);
  }
  binding.next_pos += row.tokens;
  if (std::ssize(binding.pages) * ops::kPageTokens < binding.next_pos) {
    return diverges(fmt::format("has {} pages for {} tokens", binding.pages.size(), binding.next_pos));
  }
  binding.prompt_ended = binding.prompt_ended || row.samples;
  return {};
}

std::optional<Book::Held> Book::drop(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return std::nullopt;
  Held held{found->second.slot, std::move(found->second.pages)};
  requests_.erase(found);
  slot_owner_[static_cast<std::size_t>(held.slot.value)] = RequestId{};
  for (const PageId page : held.pages) page_owner_[static_cast<std::size_t>(page.value)] = RequestId{};
  return held;
}

Book::Table Book::table(RequestId request) const {
  const Binding& binding = requests_.at(request);
  return {binding.pages, binding.known};
}

std::optional<SlotId> Book::slot(RequestId request) const {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return std::nullopt;
  return found->second.slot;
}

}  // namespace tandem::rank
