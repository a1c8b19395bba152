#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "rank/step.h"

namespace tandem::rank {

// What one rank knows of the requests that it holds: which slot and which pages are whose, and how far
// each has come. The mirror of the controller's books, kept by the steps' deltas (R1.4); any disagreement is
// divergence, and fatal.
//
// Thread: the rank's.
class Book {
 public:
  // Slots 0..slots-1 and pages 0..pages-1.
  Book(int slots, int pages);

  // Takes in a step's rows: binds new requests, adds pages, advances positions.
  // Error: Protocol, naming row, request and what disagrees; the book is then of no use any more.
  [[nodiscard]] Result<void> apply(const Step& step);

  struct Held {
    SlotId slot;
    std::vector<PageId> pages;
  };
  // Ends the binding. Nothing: the request holds nothing here.
  [[nodiscard]] std::optional<Held> drop(RequestId request);

  // The request's page table, and how many of its entries were there before the latest apply().
  struct Table {
    std::span<const PageId> pages;
    std::int32_t known = 0;
  };
  [[nodiscard]] Table table(RequestId request) const;  // of a request that is held

  [[nodiscard]] std::optional<SlotId> slot(RequestId request) const;
  [[nodiscard]] int held() const { return static_cast<int>(requests_.size()); }

 private:
  struct Binding {
    SlotId slot;
    std::vector<PageId> pages;
    std::int32_t known = 0;     // pages before the latest step
    std::int32_t next_pos = 0;  // of the request's next token
    bool prompt_ended = false;
  };

  [[nodiscard]] Result<void> apply(const Row& row, int index);

  std::unordered_map<RequestId, Binding> requests_;
  std::vector<RequestId> slot_owner_;  // by slot; 0: free
  std::vector<RequestId> page_owner_;  // by page; 0: free
};

}  // namespace tandem::rank
