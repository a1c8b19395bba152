#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "scheduler/request.h"

namespace tandem::scheduler {

// A request to end a request: the client left, or the text worker found a stop string.
struct Closing {
  RequestId request;
  // Absent: cancelled. Present: the index (from 0) of the last completion token that counts.
  std::optional<std::int32_t> stop_index;
};

// All that other threads say to the scheduler. Many writers, one reader; nobody waits for the reader.
//
// Thread: any for the first group, the scheduler's for the second. Lifetime: the engine's.
class Mailbox {
 public:
  // At most `max_waiting` (>= 1) requests are submitted and not yet admitted.
  explicit Mailbox(std::size_t max_waiting);
  Mailbox(const Mailbox&) = delete;

  // A number never given before (R1.4). Lower numbers are served first while both wait.
  [[nodiscard]] RequestId next_id() { return {next_id_.fetch_add(1, std::memory_order_relaxed)}; }

  // Errors: Overloaded (queue full), Cancelled (draining or stopping), Poisoned (the replica failed).
  [[nodiscard]] Result<void> submit(RequestSpec spec);
  // Unknown or ended requests are ignored when the scheduler reads it.
  void cancel(RequestId request);
  void stop_at(RequestId request, std::int32_t token_index);
  // No more submissions; what is queued or running goes on.
  void drain();
  // No more submissions; the scheduler ends everything and then its loop.
  void stop();

  // Why the replica failed. A failure outlives drain() and stop().
  [[nodiscard]] std::optional<Error> failure() const;
  // Whether drain() or stop() was called.
  [[nodiscard]] bool draining() const;

  // ---- the scheduler's side ----

  struct Mail {
    std::vector<RequestSpec> submissions;  // in order of arrival
    std::vector<Closing> closings;         // each after the submission it is about, if that is not older mail
    bool stop = false;
  };
  // Everything that has come since the last call.
  [[nodiscard]] Mail take();
  // `requests` have been admitted or have left while waiting: their places are free.
  void leave_queue(std::size_t requests);
  // The replica has failed: later submissions are refused with `reason` (R3.3), and failure() gives it from
  // here on. The scheduler says so before it tells any client (R3.5).
  void fail_with(Error reason);
  // Blocks until there is mail, or `longest` has passed. Whether there is mail.
  [[nodiscard]] bool wait(std::chrono::milliseconds longest);
  // Blocks until stop().
  void wait_for_stop();

 private:
  const std::size_t max_waiting_;
  std::atomic<std::uint64_t> next_id_{1};  // 0 is no request

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RequestSpec> submissions_;
  std::vector<Closing> closings_;
  std::size_t waiting_ = 0;  // submitted, not yet admitted nor gone
  bool draining_ = false;
  bool stop_ = false;
  bool stop_read_ = false;  // so that a reader that saw it can wait again
  std::optional<Error> failure_;
};

}  // namespace tandem::scheduler
