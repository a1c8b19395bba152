#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "executor/executor.h"
#include "memory/page_table.h"
#include "memory/state_slots.h"
#include "scheduler/load.h"
#include "scheduler/mailbox.h"
#include "scheduler/planner.h"
#include "scheduler/request.h"

namespace tandem::scheduler {

// The loop that drives the planner. It owns every request's logical state and never touches a device.
//
// tick() is one turn, in the order of R4.4. What a step's result ends is dropped on every rank at the
// start of the next tick, together with the clients that closed, so there is one drop command a tick; only
// then are the terminal updates delivered (R4.3).
//
// Thread: one (the scheduler's), except load(). Lifetime: the references outlive it.
class Scheduler {
 public:
  struct Settings {
    Limits limits;  // checked with check_limits()
    // Steps sent before the oldest is waited for. 1: submit, wait, repeat. 2: run-ahead, rows take
    // LastSampled; at most executor.max_in_flight().
    int steps_in_flight = 1;
  };
  Scheduler(Settings settings, executor::Executor& executor, Mailbox& mailbox, Listener& listener);
  Scheduler(const Scheduler&) = delete;

  enum class Turn : std::uint8_t {
    Busy,   // call again: there is work
    Idle,   // nothing to do until there is mail
    Ended,  // stopped or failed: every request has had its end; do not call again
  };
  Turn tick();

  // The load as last published. Thread: any.
  [[nodiscard]] Load load() const;
  // Why the replica ended, after Turn::Ended; absent if it was stopped. Thread: the scheduler's.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  // An admitted request, from its slot to its drop.
  struct Live {
    RequestSpec spec;
    Progress progress;                              // points to `spec`
    int in_flight = 0;                              // unanswered steps that name it
    std::int32_t taken = 0;                         // completion tokens read from results
    std::vector<ops::TokenChoice> prompt_logprobs;  // until the first token is delivered
    std::optional<End> end;                         // decided; withheld until the drop (R4.3)
    std::optional<Update> last;                     // the token that ended it, withheld with the end
  };
  // A request that ended in the queue: no rank has heard of it.
  struct Gone {
    RequestId request;
    Error why;
  };
  struct Flight {
    std::vector<RequestId> requests;
    StepShape shape;
  };

  // The six calls of a tick.
  void drain_submissions();
  Result<void> prune();
  void publish_load();
  Result<void> admit();
  [[nodiscard]] rank::Step make_plan();
  Result<void> run(rank::Step step);

  void close(const Closing& closing);
  void close_all();
  Result<void> send(rank::Step step);
  Result<void> collect();
  Result<void> take_artifact(Live& live, rank::Artifact artifact);
  Result<Turn> turn();
  void fail_all(const Error& reason);
  [[nodiscard]] Live* find(RequestId request);
  [[nodiscard]] bool idle() const;
  Result<void> check_books() const;

  const Settings settings_;
  executor::Executor& executor_;
  Mailbox& mailbox_;
  Listener& listener_;

  memory::StateSlots slots_;
  memory::PageTable pages_;
  std::map<RequestId, RequestSpec> waiting_;    // in order of arrival
  std::vector<Gone> gone_;                      // to be told at the next prune
  std::vector<std::unique_ptr<Live>> live_;     // in order of admission
  std::unordered_map<RequestId, Live*> by_id_;  // the same
  std::vector<Progress> plannable_;             // scratch of make_plan
  std::deque<Flight> flights_;                  // unanswered steps, oldest first
  std::vector<Update> updates_;                 // scratch of collect and prune
  bool last_step_prefilled_ = false;
  bool stopping_ = false;
  std::optional<Error> failure_;

  Load counters_;  // the scheduler's own copy
  mutable std::mutex load_mutex_;
  Load published_;
};

}  // namespace tandem::scheduler
