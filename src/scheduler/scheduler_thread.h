#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "base/result.h"
#include "executor/executor.h"
#include "scheduler/mailbox.h"
#include "scheduler/scheduler.h"

namespace tandem::scheduler {

// Runs a scheduler's loop on a thread of its own until it is stopped, and ends the executor there.
//
// Thread: one owner. Lifetime: the references outlive it.
class SchedulerThread {
 public:
  // With nothing to do it asks the ranks every `idle_ping` (> 0) whether they live, so that an idle replica whose
  // rank has died or hangs fails too. `on_failed` is called on the scheduler's thread after a fatal failure, when
  // every request has had its error and submission is closed; it must not block.
  SchedulerThread(Scheduler& scheduler, executor::Executor& executor, Mailbox& mailbox,
                  std::chrono::milliseconds idle_ping, std::function<void(const Error&)> on_failed);
  SchedulerThread(const SchedulerThread&) = delete;
  ~SchedulerThread();  // stop(), its result logged

  // Ends every request (one terminal update each), the loop and the executor; returns when all are done, which a step
  // that hangs delays by the executor's join deadline and abort grace at most.
  // Called again it returns the same. Errors: those of Executor::shutdown, after a failure the failure.
  [[nodiscard]] Result<void> stop();

 private:
  void run();

  Scheduler& scheduler_;
  executor::Executor& executor_;
  Mailbox& mailbox_;
  const std::chrono::milliseconds idle_ping_;
  const std::function<void(const Error&)> on_failed_;
  Result<void> result_;  // the thread's; read after the join
  std::thread thread_;
};

}  // namespace tandem::scheduler
