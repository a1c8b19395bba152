#include "scheduler/mailbox.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::scheduler {

Mailbox::Mailbox(std::size_t max_waiting) : max_waiting_(max_waiting) {}

Result<void> Mailbox::submit(RequestSpec spec) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return fail(ErrorKind::Poisoned, "the replica failed: " + failure_->message);
    if (draining_)
      return fail(ErrorKind::Cancelled, "the server is shutting down and takes no new requests");
    if (waiting_ >= max_waiting_)
      return fail(
          ErrorKind::Overloaded,
          fmt::format("{} requests are waiting, which is all that may wait; try again later", waiting_));
    waiting_ += 1;
    submissions_.push_back(std::move(spec));
  }
  changed_.notify_one();
  return {};
}

void Mailbox::cancel(RequestId request) {
  {
    std::lock_guard lock(mutex_);
    closings_.push_back({request, std::nullopt});
  }
  changed_.notify_one();
}

void Mailbox::stop_at(RequestId request, std::int32_t token_index) {
  {
    std::lock_guard lock(mutex_);
    closings_.push_back({request, token_index});
  }
  changed_.notify_one();
}

void Mailbox::drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

void Mailbox::stop() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    stop_ = true;
  }
  changed_.notify_one();
}

Mailbox::Mail Mailbox::take() {
  std::lock_guard lock(mutex_);
  stop_read_ = stop_;
  return {std::exchange(submissions_, {}), std::exchange(closings_, {}), stop_};
}

void Mailbox::leave_queue(std::size_t requests) {
  std::lock_guard lock(mutex_);
  waiting_ -= requests;
}

void Mailbox::fail_with(Error reason) {
  std::lock_guard lock(mutex_);
  failure_ = std::move(reason);
}

std::optional<Error> Mailbox::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

bool Mailbox::draining() const {
  std::lock_guard lock(mutex_);
  return draining_;
}

bool Mailbox::wait(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, longest,
                           [&] { return !submissions_.empty() || !closings_.empty() || stop_ != stop_read_; });
}

void Mailbox::wait_for_stop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stop_; });
}

}  // namespace tandem::scheduler
