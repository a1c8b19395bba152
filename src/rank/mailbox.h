#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace tandem::rank {

// A bounded queue between threads. Thread: any, all methods. Items come out in the order they went in.
template <class T>
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity) : capacity_(capacity) {}
  Mailbox(const Mailbox&) = delete;

  // False if full or closed; never waits.
  [[nodiscard]] bool try_push(T item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    changed_.notify_one();
    return true;
  }

  // The next item; nothing if the mailbox is closed (at once, even if items are left).
  [[nodiscard]] std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  // As pop(); nothing also if `deadline` passes first.
  [[nodiscard]] std::optional<T> pop_until(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  // As pop(), without waiting.
  [[nodiscard]] std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take();
  }

  // Ends every wait, present and later.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  [[nodiscard]] bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::optional<T> take() {
    std::optional<T> item;
    if (!closed_ && !items_.empty()) {
      item.emplace(std::move(items_.front()));
      items_.pop_front();
    }
    return item;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace tandem::rank
