#pragma once

#include <cstddef>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "rank/command.h"
#include "rank/faults.h"
#include "rank/mailbox.h"
#include "rank/rank_model.h"
#include "rank/status.h"

namespace tandem::rank {

struct WorkerOptions {
  RankId rank;
  ModelFactory make_model;
  std::shared_ptr<Mailbox<Reply>> replies;  // of all ranks, to the controller
  std::size_t queue = 8;                    // commands that may wait
  int max_in_flight = 1;                    // steps begun and not yet finished
  std::shared_ptr<Faults> faults;           // null: none
};

// One rank's thread and its command queue. The thread makes the model, runs the commands one after
// another and destroys the model; nobody else touches it (R1.2).
//
// After a first error the rank answers everything with it until the queue is closed: nothing that a
// peer may still write to is freed before the controller has aborted the group.
//
// Thread: the controller's, all methods. The thread keeps what it needs alive by itself, so that a
// stuck one can be abandoned.
class Worker {
 public:
  explicit Worker(WorkerOptions options);
  ~Worker();  // closes; joins if the thread has ended, abandons it otherwise
  Worker(const Worker&) = delete;

  // False if the queue is full or closed.
  [[nodiscard]] bool try_enqueue(Command command);
  // The thread ends after what it is doing. Commands still queued are forgotten.
  void close();
  // True once the thread has destroyed its model and ended.
  [[nodiscard]] bool wait_ended(TimePoint deadline);
  [[nodiscard]] const Status& status() const;

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace tandem::rank
