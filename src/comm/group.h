#pragma once

#include <memory>

#include "base/result.h"
#include "comm/communicator.h"
#include "comm/sequence.h"

namespace tandem::comm {

// Where the ranks of one replica meet. Made by the controller before the rank threads start, and kept
// until the last of them has ended.
class Group {
 public:
  virtual ~Group() = default;

  [[nodiscard]] virtual int world() const = 0;

  // Makes the rank's communicator and returns once all ranks have joined. Thread: the rank's, with its
  // device bound; once per rank. `progress` may be null; else it outlives the communicator. `stream`:
  // where the rank's device work is queued (ops::Backend::stream()), null for ranks on the CPU.
  // The communicator keeps what it needs of the group alive. Errors: Deadline (naming who is missing),
  // Poisoned, Device.
  [[nodiscard]] virtual Result<std::unique_ptr<Communicator>> join(RankId rank, Progress* progress,
                                                                   void* stream = nullptr) = 0;

  // Ends every present and later wait of every rank with Poisoned and this reason; the first reason
  // stays. Thread: any. Does not wait for a rank.
  virtual void abort(const Error& reason) noexcept = 0;
};

}  // namespace tandem::comm
