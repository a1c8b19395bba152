#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "rank/step.h"

namespace tandem::executor {

// The controller's side of the rank protocol (R1 to R3), as the scheduler sees it.
//
// Thread: the scheduler's, every method but end_soon(). Implementations: RankExecutor (real ranks, any world size)
// and the fakes of tests.
class Executor {
 public:
  virtual ~Executor() = default;

  [[nodiscard]] virtual const rank::Capacity& capacity() const = 0;

  // Puts the step on every rank's queue and releases it (R2.1). At most `max_in_flight` steps are
  // unanswered. Errors: Invalid for what the controller can see (R2.5: empty, duplicate ids, too many
  // rows or tokens, chunk shapes), which leaves the executor healthy; any other kind poisons it.
  [[nodiscard]] virtual Result<void> submit_step(rank::Step step) = 0;
  [[nodiscard]] virtual int max_in_flight() const { return 1; }

  // The oldest unanswered step's result, once every rank has replied (R2.2) and the artifacts are
  // exactly those the step owes (R2.4). Any error is fatal: the executor is poisoned.
  [[nodiscard]] virtual Result<rank::StepResult> wait_step() = 0;

  // Drops requests on every rank; returns when all have acknowledged (R4.2, R4.3). No step may be in
  // flight that names them. At most one call a tick. Any error is fatal.
  [[nodiscard]] virtual Result<void> drop(std::span<const rank::Drop> drops) = 0;

  // Whether every rank still answers and its device still works. For a controller with nothing in flight: it
  // would not hear of a dead rank before the next command. Any error is fatal.
  [[nodiscard]] virtual Result<void> ping() = 0;

  // The first failure, once there is one (R3.1).
  [[nodiscard]] virtual std::optional<Error> poisoned() const = 0;

  // The process is to end and nobody waits for results any more: from now on steps and drops are waited for no longer
  // than the join deadline, however long theirs is (R3.2). Thread: any.
  virtual void end_soon() {}

  // Orderly end: every rank joined within its deadline (R3.2). Error: Deadline, naming the rank.
  [[nodiscard]] virtual Result<void> shutdown() = 0;
};

}  // namespace tandem::executor
