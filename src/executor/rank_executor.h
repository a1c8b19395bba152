#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "comm/group.h"
#include "executor/deadlines.h"
#include "executor/executor.h"
#include "executor/watchdog.h"
#include "rank/command.h"
#include "rank/faults.h"
#include "rank/rank_model.h"
#include "rank/worker.h"

namespace tandem::executor {

// Exit status of a process whose ranks could not be ended in time (EX_SOFTWARE of sysexits.h).
inline constexpr int kExitStuckRank = 70;

// What start-up is doing, for a progress bar. Bytes are summed over ranks; 0 of 0 where nothing is counted.
struct StartProgress {
  std::string_view phase;  // "Open", "Load", ...: the command's name
  std::int64_t done_bytes = 0;
  std::int64_t total_bytes = 0;
};
using StartProgressSink = std::function<void(const StartProgress&)>;

struct RankExecutorOptions {
  std::shared_ptr<comm::Group> group;  // its world is the number of ranks; aborted with the poison
  rank::ModelFactory make_model;       // called on each rank's thread
  // What is asked for; the ranks' measurements lower slots and pages.
  rank::Capacity wanted;
  bool context_is_wish = false;  // with fewer pages, a shorter max_context instead of a refusal
  bool mixed = true;             // decode and prefill rows in one step
  int max_in_flight = 1;         // unanswered steps, 1 or 2
  Deadlines deadlines;
  std::shared_ptr<rank::Faults> faults;  // null: none
  // Ends the process at once, without destructors. Default: _exit. Tests put their own here.
  std::function<void(int status)> exit_process;
};

// The controller of the ranks of one replica: R1 to R3 and R5.1 for any world size.
//
// Thread: one at a time, every method but end_soon() (the scheduler's, once started).
// Failure: the first one poisons. It aborts the group, so that no rank waits for another, closes the
// queues, and starts a watchdog that ends the process if it is still there after `process_exit`. shutdown()
// then joins the ranks within the abort grace; a rank that does not end is named in the log with its
// command and collective, and the process is ended with kExitStuckRank.
class RankExecutor final : public Executor {
 public:
  // Runs the start-up commands. Errors: the first rank's, with rank and command named; Capacity if what the
  // ranks can hold does not serve one request of max_context tokens. The ranks have ended then.
  [[nodiscard]] static Result<std::unique_ptr<RankExecutor>> start(RankExecutorOptions options,
                                                                   const StartProgressSink& progress = {});
  ~RankExecutor() override;  // shutdown(), if it was not called

  [[nodiscard]] const rank::Capacity& capacity() const override { return capacity_; }
  [[nodiscard]] Result<void> submit_step(rank::Step step) override;
  [[nodiscard]] int max_in_flight() const override { return options_.max_in_flight; }
  [[nodiscard]] Result<rank::StepResult> wait_step() override;
  [[nodiscard]] Result<void> drop(std::span<const rank::Drop> drops) override;
  [[nodiscard]] Result<void> ping() override;
  [[nodiscard]] std::optional<Error> poisoned() const override { return poison_; }
  void end_soon() override;
  [[nodiscard]] Result<void> shutdown() override;

 private:
  // A command that was released and is not fully answered, or not yet waited for.
  struct Pending {
    std::uint64_t number = 0;
    rank::CommandBody body;
    Nanoseconds limit{};
    std::vector<std::optional<rank::Answer>> answers;  // one per rank
    std::vector<comm::SequenceMark> collectives;       // the same
    int answered = 0;
  };

  explicit RankExecutor(RankExecutorOptions options);
  Result<void> start_ranks(const StartProgressSink& progress);
  Result<void> agree_on_capacity(const Pending& measured);

  Result<void> healthy() const;
  // R2.1. Returns the command's number.
  Result<std::uint64_t> release(rank::CommandBody body, Nanoseconds limit);
  // R2.2, R2.3: takes in replies until the command has all of its own; removes and returns it.
  Result<Pending> collect(std::uint64_t number, const StartProgressSink& progress = {});
  Result<Pending> call(rank::CommandBody body, Nanoseconds limit, const StartProgressSink& progress = {});
  Result<void> take(rank::Reply reply);
  // R7.7. Called with all ranks' answers to one command.
  Result<void> same_collectives(const Pending& done);
  Error overdue(const Pending& pending, TimePoint end_by) const;
  std::int64_t report_load(const StartProgressSink& progress, std::string_view phase) const;

  tl::unexpected<Error> poison(Error error);
  // Waits for the threads' end; names and abandons those that are late.
  Result<void> end_ranks(TimePoint deadline);
  int world() const { return options_.group->world(); }

  RankExecutorOptions options_;
  rank::Capacity capacity_;
  std::shared_ptr<rank::Mailbox<rank::Reply>> replies_;
  std::vector<std::unique_ptr<rank::Worker>> workers_;
  std::uint64_t last_number_ = 0;
  std::deque<Pending> pending_;      // in the order of release
  std::deque<std::uint64_t> steps_;  // numbers of the steps that wait_step() owes
  TimePoint progress_since_{};       // when the oldest pending command became the oldest
  std::atomic<TimePoint> end_by_{TimePoint::max()};  // of all but Shutdown; end_soon()
  std::optional<Error> poison_;
  std::optional<Result<void>> ended_;   // shutdown()'s result
  std::unique_ptr<Watchdog> watchdog_;  // from the poison on
};

}  // namespace tandem::executor
