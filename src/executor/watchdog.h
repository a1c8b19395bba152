#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace tandem::executor {

// Calls `bark` on a thread of its own unless it is destroyed within `delay`.
class Watchdog {
 public:
  Watchdog(Nanoseconds delay, std::function<void()> bark);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::thread thread_;
};

}  // namespace tandem::executor
