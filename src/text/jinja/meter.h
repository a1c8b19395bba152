#pragma once

#include <cstddef>
#include <cstdint>

#include "text/jinja/limits.h"

namespace tandem::text::jinja {

// What a rendering has used of its Limits. Comparing, printing and hashing values walk structures whose
// size as a tree can be exponential in their size in memory ([x, x] of [x, x] of ...), so every visit is
// paid. Those functions are also called where no context is at hand (by hash tables), so they pay the
// meter of the rendering that runs on this thread; there is at most one.
//
// Thread: the rendering's. Limit failure as soon as a bound is passed.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits), outer_(current_) { current_ = this; }
  ~Meter() { current_ = outer_; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(std::uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  void spend(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.max_value_bytes) fail_bytes();
    step(bytes / kBytesPerStep);
  }

  // Copying this much costs about as much as evaluating a node.
  static constexpr std::size_t kBytesPerStep = 256;

  // For code without a context; free outside of a rendering.
  static void pay(std::uint64_t steps = 1) {
    if (current_ != nullptr) current_->step(steps);
  }
  static void pay_bytes(std::size_t bytes) {
    if (current_ != nullptr) current_->spend(bytes);
  }

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_bytes() const;

  static thread_local Meter* current_;
  const Limits& limits_;
  Meter* outer_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tandem::text::jinja
