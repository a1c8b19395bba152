#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/ids.h"
#include "base/result.h"
#include "comm/sequence.h"

namespace tandem::comm {

// What ranks say to each other inside a step: hidden vectors and chosen token ids, nothing else.
//
// Thread: made (by Group::join), used and destroyed on its rank's thread, after the device is bound
// (R1.2). Every rank makes the same calls in the same order (R2.6); each call is queued on the rank's
// stream (or done at once on a CPU) in program order. Group::abort ends every wait, from any thread.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual RankId rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;

  // data[i] becomes the sum over ranks of data[i]: added in float32 in rank order and rounded once to
  // bf16 (R7.7), so that every rank holds the same bits. In place, device memory of this rank.
  // Errors: Deadline (a peer did not come), Poisoned (aborted), Protocol (a peer makes another call),
  // Device.
  [[nodiscard]] virtual Result<void> all_reduce(bf16* data, std::int64_t elements) = 0;

  // Every rank's data becomes rank 0's. The chosen token ids of a step (R1.7). Errors as above.
  [[nodiscard]] virtual Result<void> broadcast(std::int32_t* data, std::int64_t elements) = 0;

  // Returns once every rank has called it: the end of start-up and of orderly shutdown (R3.2). The host
  // waits, after all that was queued before. Errors as above.
  [[nodiscard]] virtual Result<void> barrier() = 0;

  // What went wrong on the device in collectives that were queued and have since ended; nothing where a
  // collective is done when its call returns. Called after the host has waited for the device. Errors as above.
  [[nodiscard]] virtual Result<void> check() { return {}; }

  // Of every collective so far; equal on all ranks (P2a gate 3).
  [[nodiscard]] virtual SequenceMark sequence() const = 0;
};

}  // namespace tandem::comm
