#include "ops/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace tandem::ops {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 256;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// `bytes` is a multiple of kHugePage. Maps one page more and gives back what sticks out on both sides.
void* map_huge(std::size_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(begin, kHugePage);
  if (aligned > begin) munmap(raw, aligned - begin);
  const std::uintptr_t end = begin + bytes + kHugePage;
  if (end > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), end - (aligned + bytes));
  void* start = reinterpret_cast<void*>(aligned);
  madvise(start, bytes, MADV_HUGEPAGE);  // advice: without it the memory is merely slower
  return start;
}

}  // namespace

HostMemory::~HostMemory() {
  for (const Piece& piece : pieces_) {
    if (piece.mapped) {
      munmap(piece.start, piece.bytes);
    } else {
      std::free(piece.start);
    }
  }
}

Result<void*> HostMemory::allocate(std::size_t bytes, MemoryUse use, std::string_view what) {
  const std::size_t free_bytes = host_memory_size().free_bytes;
  const auto refuse = [&] {
    return fail(ErrorKind::Capacity,
                fmt::format("[memory] {} needs {} bytes, the host has {} bytes free; "
                            "fewer requests, a shorter context or a smaller model would fit",
                            what, bytes, free_bytes));
  };
  if (bytes > free_bytes) return refuse();
  Piece piece{};
  if (bytes >= kHugePage) {
    piece = {nullptr, round_up(bytes, kHugePage), true};
    piece.start = map_huge(piece.bytes);
  } else {
    piece = {nullptr, round_up(bytes == 0 ? 1 : bytes, kAlignment), false};
    piece.start = std::aligned_alloc(kAlignment, piece.bytes);
    if (piece.start != nullptr) std::memset(piece.start, 0, piece.bytes);
  }
  if (piece.start == nullptr) return refuse();
  pieces_.push_back(piece);
  books_.push_back({use, std::string(what), bytes});
  return piece.start;
}

HostMemorySize host_memory_size() {
  HostMemorySize size;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemTotal:") size.total_bytes = kib * 1024;
    if (key == "MemAvailable:") size.free_bytes = kib * 1024;
  }
  return size;
}

}  // namespace tandem::ops
