#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "engine/engine.h"
#include "engine/output.h"
#include "scheduler/mailbox.h"
#include "scheduler/request.h"

namespace tandem::engine {

// Turns the scheduler's updates into the events of each request's sink: text, stop strings, usage.
// A stop string that matches is posted to the scheduler; the finish still waits for the scheduler's
// end, which comes after the drop (R4.3).
//
// Thread: work() on one thread (the text worker's), which is the one that calls sinks; all others any.
// Lifetime: the mailbox outlives it.
class TextWorker final : public scheduler::Listener {
 public:
  explicit TextWorker(scheduler::Mailbox& mailbox);
  TextWorker(const TextWorker&) = delete;

  // Before the request is submitted to the scheduler; forget() if that then fails.
  void open(RequestId id, Output output, std::shared_ptr<EventSink> sink);
  void forget(RequestId id);
  // The client cancelled: it gets nothing more but its terminal event, also of what lies in the inbox.
  void mute(RequestId id);
  // Called by work() after all that was posted before.
  void post(std::function<void()> call);
  // Waits while too many updates lie unread; work() never waits for the scheduler, so that ends.
  void on_updates(std::vector<scheduler::Update> updates) override;

  // Handles all that lies in the inbox; returns whether there was anything. With `wait`, blocks until
  // there is something or close() was called; false then means closed and empty.
  bool work(bool wait);
  void close();

  // Terminal events delivered so far. Thread: any.
  struct Counts {
    std::uint64_t stop = 0, length = 0, cancelled = 0, failed = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Open {
    RequestId id;
    std::unique_ptr<Output> output;
    std::shared_ptr<EventSink> sink;
  };
  struct Forget {
    RequestId id;
  };
  struct Mute {
    RequestId id;
  };
  using Message = std::variant<Open, Forget, Mute, std::function<void()>, scheduler::Update>;
  struct Client {
    std::unique_ptr<Output> output;
    std::shared_ptr<EventSink> sink;
    bool muted = false;
  };

  void push(Message message);
  void read_mutes();
  void handle(Message& message);
  void update(scheduler::Update& update);
  void end(RequestId id, Client& client, scheduler::End& end);

  scheduler::Mailbox& mailbox_;
  std::unordered_map<RequestId, Client> clients_;  // work()'s

  std::mutex mutex_;
  std::condition_variable arrived_, read_;
  std::vector<Message> inbox_;
  std::vector<RequestId> mutes_;  // read before each update: a cancellation overtakes what is unread
  std::atomic<bool> has_mutes_{false};
  bool closed_ = false;
  std::atomic<std::uint64_t> stop_{0}, length_{0}, cancelled_{0}, failed_{0};
};

}  // namespace tandem::engine
