#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::memory {

// Pages that hold this many tokens.
[[nodiscard]] std::int64_t pages_for(std::int64_t tokens);

// Tokens that a request writes to its pages in its whole life (R5.2): the last sampled token is
// delivered but never fed back, so one less than prompt + max_tokens.
[[nodiscard]] std::int64_t lifetime_tokens(std::int64_t prompt, std::int64_t max_tokens);

// Which request holds which KV pages. A request sets its whole life aside at admission and takes pages
// as it grows, so that one that was admitted never fails for memory (R5.2). Numbers only: the bytes lie
// in each rank's KvPool under the same PageId.
//
// Thread: scheduler, no locks. Lifetime: the engine's. A page never moves while it is held.
class PageTable {
 public:
  // `capacity` >= 0: the minimum over ranks (R5.1). Page number `capacity` is for padding rows.
  explicit PageTable(int capacity);
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Whether a request of that many lifetime tokens could be admitted to an idle table (R5.3).
  [[nodiscard]] bool could_ever_fit(std::int64_t tokens) const { return pages_for(tokens) <= capacity_; }

  // Sets pages aside for `tokens` tokens (lifetime_tokens). Takes none yet.
  // Errors: Capacity (not now: the request keeps waiting; or never, with the limit named), Duplicate.
  [[nodiscard]] Result<void> reserve(RequestId request, std::int64_t tokens);

  // Takes pages, lowest free ids first, until the request's table covers `tokens` tokens. Returns those
  // that this call added, for the step's delta; the span lives until the request's next call.
  // Errors: NotHeld, Capacity (beyond what was set aside: a bug of the caller).
  [[nodiscard]] Result<std::span<const PageId>> extend(RequestId request, std::int64_t tokens);

  // The whole table: entry i holds tokens 64 i .. 64 i + 63. Empty for an unknown request.
  [[nodiscard]] std::span<const PageId> pages(RequestId request) const;

  // Gives back pages and reservation. Only after every rank has acknowledged the drop (R4.3).
  // Error: NotHeld, which is divergence: the caller poisons.
  [[nodiscard]] Result<void> release(RequestId request);

  // For the idle tick: held + free = capacity, and no more set aside than there is. Error: Corrupt.
  [[nodiscard]] Result<void> check() const;

  [[nodiscard]] int capacity() const { return capacity_; }
  [[nodiscard]] int held() const { return held_; }              // pages in tables
  [[nodiscard]] int reserved() const { return reserved_; }      // pages set aside, those held included
  [[nodiscard]] int unreserved() const { return capacity_ - reserved_; }
  [[nodiscard]] int free() const { return static_cast<int>(free_.size()); }  // in no table

 private:
  struct Holding {
    int reserved = 0;
    std::vector<PageId> pages;
  };

  const int capacity_;
  int reserved_ = 0;
  int held_ = 0;
  std::set<PageId> free_;
  std::map<RequestId, Holding> requests_;
};

}  // namespace tandem::memory
