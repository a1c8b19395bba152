#pragma once

#include <functional>
#include <memory>

namespace tandem::server {

// SIGTERM and SIGINT, given to `on_signal` on a thread of its own. The first object of the process
// only. Restores the former handling when destroyed.
class SignalWatch {
 public:
  [[nodiscard]] static std::unique_ptr<SignalWatch> start(std::function<void(int)> on_signal);
  virtual ~SignalWatch() = default;
};

}  // namespace tandem::server
