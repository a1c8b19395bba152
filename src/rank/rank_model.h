#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/sequence.h"
#include "rank/command.h"
#include "rank/status.h"
#include "rank/step.h"

namespace tandem::rank {

// What a rank's thread drives: everything physical of one rank. ModelRank is the real one; the
// executor's tests have others.
//
// Thread: made, used and destroyed on the rank's thread (R1.2). The worker calls the start-up methods
// once each, in this order, and nothing after an error but the destructor. An exception counts as an error.
class RankModel {
 public:
  virtual ~RankModel() = default;

  [[nodiscard]] virtual Result<void> open() = 0;
  [[nodiscard]] virtual Result<void> load() = 0;  // reports to Status::loaded as it goes
  [[nodiscard]] virtual Result<void> warm_up() = 0;
  [[nodiscard]] virtual Result<Measured> measure() = 0;
  [[nodiscard]] virtual Result<void> allocate(const AllocateCommand& sizes) = 0;

  // Queues the step's work, with all its collectives, and returns a ticket. `step` lives until finish().
  [[nodiscard]] virtual Result<std::uint64_t> begin(const Step& step) = 0;
  // Waits for the oldest unfinished step, which is `ticket`'s. Artifacts on rank 0, none elsewhere.
  [[nodiscard]] virtual Result<StepResult> finish(std::uint64_t ticket) = 0;
  // Frees what the requests hold; for each, whether it was there. No step is unfinished.
  [[nodiscard]] virtual Result<std::vector<bool>> drop(std::span<const Drop> drops) = 0;

  // Whether the device still works. No step is unfinished.
  [[nodiscard]] virtual Result<void> ping() = 0;

  // The collectives of all steps and commands begun so far; equal on all ranks after the same command (P2a gate 3).
  [[nodiscard]] virtual comm::SequenceMark collectives() const = 0;

  // Fault injection: the request's recurrent state and conv window become NaN.
  [[nodiscard]] virtual Result<void> spoil(RequestId request) = 0;

  // Orderly end (R3.2): waits for the device, then for all ranks. Only the destructor follows.
  [[nodiscard]] virtual Result<void> close() = 0;
};

// Called on the rank's thread. `status` outlives the model.
using ModelFactory = std::function<Result<std::unique_ptr<RankModel>>(RankId rank, Status& status)>;

}  // namespace tandem::rank
