#pragma once

#include <memory>

#include "base/clock.h"
#include "comm/group.h"

namespace tandem::comm {

struct SharedMemoryOptions {
  int world = 1;  // 1..64
  Nanoseconds join_deadline = std::chrono::seconds(120);
  Nanoseconds collective_deadline = std::chrono::seconds(600);
  // Polls before a wait blocks. 0 where there are not more cores than threads: a spinning rank would
  // take the core that its peer needs.
  int spin = 0;
};

// Ranks that are threads of one process and share its memory: CPU ranks.
//
// all_reduce: every rank shows where its data is; all meet; rank r sums its share of the elements over
// all ranks' data, in rank order, and writes the sums back into all of them; all meet again. Nothing is
// copied twice, and every rank gets the bits that one rank computed (R7.7).
// A call that differs from a peer's in kind or size ends the group with Protocol on every rank, before
// any data is touched. The second meeting cannot be aborted: peers may still write to this rank's data, which
// must not be freed under them, and nothing but arithmetic lies between the two.
// Error: Invalid for a world out of range.
[[nodiscard]] Result<std::shared_ptr<Group>> make_shared_memory(const SharedMemoryOptions& options);

}  // namespace tandem::comm
