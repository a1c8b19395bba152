#pragma once

#include <condition_variable>
#include <mutex>

namespace tandem::rank {

// Holds a command back on every rank until it stands on all ranks' queues (R2.1). One gate a command,
// shared by its copies. Thread: any.
class StartGate {
 public:
  // The first of the two decides; the other then does nothing.
  void release() { decide(State::Released); }
  void cancel() { decide(State::Cancelled); }

  // Waits for the decision. True: run the command. False: drop it untouched, without a reply.
  [[nodiscard]] bool wait() {
    std::unique_lock lock(mutex_);
    decided_.wait(lock, [&] { return state_ != State::Closed; });
    return state_ == State::Released;
  }

 private:
  enum class State { Closed, Released, Cancelled };

  void decide(State state) {
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::Closed) state_ = state;
    }
    decided_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable decided_;
  State state_ = State::Closed;
};

}  // namespace tandem::rank
