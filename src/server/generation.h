#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "server/answer_format.h"
#include "server/api_error.h"
#include "server/metrics.h"
#include "server/response_stream.h"

namespace tandem::server {

// One HTTP request's generation: the engine requests of its choices, their events, and the answer
// written from them. Events wait here until the connection takes them; JSON is made only then, on
// the connection's thread, so the engine's text worker never waits for it.
//
// The head goes out with the first event, so that a failure before it still has its own status.
// Thread: as ResponseStream; the sinks on the engine's. Lifetime: the engine and the clock outlive it. It
// may outlive the server, until the engine has said its last word; all of the server's that it then
// touches are the metrics.
class Generation final : public ResponseStream, public std::enable_shared_from_this<Generation> {
 public:
  struct Setup {
    engine::Engine& engine;
    std::shared_ptr<Metrics> metrics;
    const Clock& clock;
    std::unique_ptr<AnswerFormat> format;
    bool stream = false;
    std::size_t behind_bytes = 0;  // of events not yet taken or written: more is an overflow
  };

  // Submits one engine request per choice. If one is refused, the others are cancelled and that
  // error is returned.
  [[nodiscard]] static Result<std::shared_ptr<Generation>> start(Setup setup, std::vector<engine::Request> choices);

  explicit Generation(Setup setup, std::size_t choices);

  void on_ready(std::function<void()> wake) override;
  [[nodiscard]] Part take() override;
  [[nodiscard]] bool overflowed() const override;
  void close() override;
  void abort(Error error) override;

 private:
  class Sink;
  struct Event {
    int choice = 0;
    std::variant<engine::Delta, engine::Finish, Error> what;
    TimePoint at{};
  };
  struct ChoiceState {
    RequestId id{};  // 0 until submitted
    bool ended = false;
    bool cancelled = false;  // the engine has been told
    TimePoint last{};  // of its newest token
    TimePoint first{};
    bool any_token = false;
  };

  void push(int choice, std::variant<engine::Delta, engine::Finish, Error> what);
  void observe(ChoiceState& choice, const std::variant<engine::Delta, engine::Finish, Error>& what, TimePoint now);
  // The choices that the engine still works on and has not been told to end; they count as told.
  [[nodiscard]] std::vector<RequestId> take_running_locked();
  void wake_locked();
  void cancel_all(const std::vector<RequestId>& ids);

  engine::Engine& engine_;
  const std::shared_ptr<Metrics> metrics_;
  const Clock& clock_;
  const std::unique_ptr<AnswerFormat> format_;  // used by take() only
  const bool stream_;
  const std::size_t behind_bytes_;
  const TimePoint submitted_;
  bool head_sent_ = false;    // take() only
  int choices_finished_ = 0;  // take() only
  std::string whole_;         // take() only

  mutable std::mutex mutex_;  // of all below; never held while calling the engine
  std::vector<ChoiceState> choices_;
  std::deque<Event> events_;
  std::size_t waiting_bytes_ = 0;  // of events_
  std::size_t writing_bytes_ = 0;  // of the part taken last
  std::function<void()> wake_;
  bool closed_ = false;
  bool overflowed_ = false;
};

}  // namespace tandem::server
