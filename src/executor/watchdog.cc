#include "executor/watchdog.h"

namespace tandem::executor {

Watchdog::Watchdog(Nanoseconds delay, std::function<void()> bark)
    : thread_([this, delay, bark = std::move(bark)] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_until(lock, std::chrono::steady_clock::now() + delay, [&] { return cancelled_; }))
          return;
        lock.unlock();
        bark();
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace tandem::executor
