#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"

namespace tandem::ops {

// The memory of a backend whose device is the host, with its books.
//
// Large pieces ask for huge pages: with 4 KiB pages a decode step loses a third of the read bandwidth
// to address translation. Pages are touched when first written, so an unused piece costs nothing.
// Thread: the backend's. Everything lives until this object does.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  // Zero-filled, aligned to 256 bytes (2 MiB from 2 MiB on). Error: Capacity, with what was asked and free.
  [[nodiscard]] Result<void*> allocate(std::size_t bytes, MemoryUse use, std::string_view what);
  [[nodiscard]] std::span<const Allocation> allocations() const { return books_; }

 private:
  struct Piece {
    void* start;
    std::size_t bytes;
    bool mapped;
  };
  std::vector<Piece> pieces_;
  std::vector<Allocation> books_;
};

struct HostMemorySize {
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;  // what Linux says can be had without swapping
};
[[nodiscard]] HostMemorySize host_memory_size();

}  // namespace tandem::ops
