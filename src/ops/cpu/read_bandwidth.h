#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "base/thread_team.h"
#include "ops/host_memory.h"

namespace tandem::ops::cpu {

// How fast a team reads memory here and now: what streaming weights is measured against. 1 GiB of huge pages,
// read once a pass with nothing done to it but a sum that costs no time.
//
// Thread: the one that made it.
class ReadBandwidth {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;

  // Error: Capacity.
  [[nodiscard]] static Result<std::unique_ptr<ReadBandwidth>> make(int threads);

  // Bytes per second of the best of `passes`.
  [[nodiscard]] double measure(int passes);

 private:
  explicit ReadBandwidth(int threads) : team_(threads) {}

  HostMemory memory_;
  ThreadTeam team_;
  char* data_ = nullptr;
};

}  // namespace tandem::ops::cpu
