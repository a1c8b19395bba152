#include "scheduler/scheduler_thread.h"

#include <utility>

#include "base/log.h"

namespace tandem::scheduler {

SchedulerThread::SchedulerThread(Scheduler& scheduler, executor::Executor& executor, Mailbox& mailbox,
                                 std::chrono::milliseconds idle_ping, std::function<void(const Error&)> on_failed)
    : scheduler_(scheduler),
      executor_(executor),
      mailbox_(mailbox),
      idle_ping_(idle_ping),
      on_failed_(std::move(on_failed)),
      thread_([this] { run(); }) {}

SchedulerThread::~SchedulerThread() {
  if (!thread_.joinable()) return;  // stopped before
  if (auto ended = stop(); !ended) log_error("[scheduler] {}", ended.error().message);
}

Result<void> SchedulerThread::stop() {
  executor_.end_soon();
  mailbox_.stop();
  if (thread_.joinable()) thread_.join();
  return result_;
}

void SchedulerThread::run() {
  for (auto turn = scheduler_.tick(); turn != Scheduler::Turn::Ended; turn = scheduler_.tick()) {
    if (turn != Scheduler::Turn::Idle || mailbox_.wait(idle_ping_)) continue;
    static_cast<void>(executor_.ping());  // its error is the executor's poison, which the next turn meets
  }
  if (const auto& failure = scheduler_.failure()) {
    log_error("[scheduler] the replica failed: {}", failure->message);
    if (on_failed_) on_failed_(*failure);
  }
  mailbox_.wait_for_stop();
  result_ = executor_.shutdown();
  if (scheduler_.failure()) result_ = fail(*scheduler_.failure());
}

}  // namespace tandem::scheduler
