#include "server/generation.h"

#include <utility>

namespace tandem::server {
namespace {

double seconds_between(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

// About what an event will take when written; only sums matter, for the behind limit.
std::size_t estimated_bytes(const std::variant<engine::Delta, engine::Finish, Error>& what) {
  constexpr std::size_t kFrame = 200;
  const auto* delta = std::get_if<engine::Delta>(&what);
  if (delta == nullptr) return kFrame;
  std::size_t bytes = kFrame + delta->text.size() + delta->reasoning_text.size();
  for (const auto* entries : {&delta->logprobs, &delta->prompt_logprobs}) {
    for (const engine::TokenLogprob& entry : *entries) bytes += 60 * (1 + entry.top.size());
  }
  return bytes;
}

}  // namespace

class Generation::Sink final : public engine::EventSink {
 public:
  Sink(std::shared_ptr<Generation> generation, int choice) : generation_(std::move(generation)), choice_(choice) {}
  void on_delta(RequestId, engine::Delta delta) override { generation_->push(choice_, std::move(delta)); }
  void on_finish(RequestId, engine::Finish finish) override { generation_->push(choice_, std::move(finish)); }
  void on_failure(RequestId, Error error) override { generation_->push(choice_, std::move(error)); }

 private:
  const std::shared_ptr<Generation> generation_;
  const int choice_;
};

Generation::Generation(Setup setup, std::size_t choices)
    : engine_(setup.engine),
      metrics_(std::move(setup.metrics)),
      clock_(setup.clock),
      format_(std::move(setup.format)),
      stream_(setup.stream),
      behind_bytes_(setup.behind_bytes),
      submitted_(setup.clock.now()),
      choices_(choices) {}

Result<std::shared_ptr<Generation>> Generation::start(Setup setup, std::vector<engine::Request> choices) {
  auto generation = std::make_shared<Generation>(std::move(setup), choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    auto id = generation->engine_.submit(std::move(choices[i]), std::make_shared<Sink>(generation, static_cast<int>(i)));
    if (!id) {
      generation->close();
      return fail(std::move(id.error()));
    }
    std::vector<RequestId> late;
    {
      const std::lock_guard lock(generation->mutex_);
      generation->choices_[i].id = *id;
      if (generation->overflowed_) late = generation->take_running_locked();  // events were faster than the id
    }
    generation->cancel_all(late);
  }
  return generation;
}

void Generation::observe(ChoiceState& choice, const std::variant<engine::Delta, engine::Finish, Error>& what,
                         TimePoint now) {
  if (const auto* delta = std::get_if<engine::Delta>(&what)) {
    if (delta->tokens.empty()) return;
    const auto tokens = static_cast<int>(delta->tokens.size());
    if (!choice.any_token) {
      metrics_->first_token(seconds_between(submitted_, now));
      choice.first = now;
      choice.any_token = true;
    } else {
      metrics_->token_gap(seconds_between(choice.last, now), tokens);
    }
    choice.last = now;
    return;
  }
  const double seconds = seconds_between(submitted_, now);
  if (const auto* finish = std::get_if<engine::Finish>(&what)) {
    const int gaps = finish->usage.completion_tokens - 1;
    const double per_token = gaps > 0 && choice.any_token ? seconds_between(choice.first, choice.last) / gaps : 0.0;
    const bool length = finish->reason == engine::FinishReason::Length;
    metrics_->request_ended(length ? Metrics::End::Length : Metrics::End::Stop, seconds, finish->usage, per_token);
    return;
  }
  const bool cancelled = std::get<Error>(what).kind == ErrorKind::Cancelled;
  metrics_->request_ended(cancelled ? Metrics::End::Abort : Metrics::End::Error, seconds, {}, 0.0);
}

void Generation::push(int choice, std::variant<engine::Delta, engine::Finish, Error> what) {
  std::vector<RequestId> to_cancel;
  {
    const std::lock_guard lock(mutex_);
    ChoiceState& state = choices_[static_cast<std::size_t>(choice)];
    const TimePoint now = clock_.now();
    const bool last = !std::holds_alternative<engine::Delta>(what);
    observe(state, what, now);
    if (last) state.ended = true;
    if (closed_ || overflowed_) return;
    waiting_bytes_ += estimated_bytes(what);
    if (stream_ && waiting_bytes_ + writing_bytes_ > behind_bytes_) {
      overflowed_ = true;
      events_.clear();
      to_cancel = take_running_locked();
      wake_locked();
    } else {
      // A whole answer is only looked at when a choice has ended; a stream at each event that finds
      // nothing else waiting (the connection takes all there is).
      const bool wake = stream_ ? events_.empty() : last;
      events_.push_back({choice, std::move(what), now});
      if (wake) wake_locked();
    }
  }
  cancel_all(to_cancel);
}

// Under the lock, so that nobody is woken after `close`: the connection's loop may be gone then.
void Generation::wake_locked() {
  if (wake_) wake_();
}

std::vector<RequestId> Generation::take_running_locked() {
  std::vector<RequestId> ids;
  for (ChoiceState& choice : choices_) {
    if (choice.ended || choice.id.value == 0 || std::exchange(choice.cancelled, true)) continue;
    ids.push_back(choice.id);
  }
  return ids;
}

void Generation::cancel_all(const std::vector<RequestId>& ids) {
  for (const RequestId id : ids) engine_.cancel(id);
}

void Generation::on_ready(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

ResponseStream::Part Generation::take() {
  std::deque<Event> events;
  {
    const std::lock_guard lock(mutex_);
    if (overflowed_) return {};
    events.swap(events_);
    writing_bytes_ = waiting_bytes_;
    waiting_bytes_ = 0;
  }
  Part part;
  if (events.empty()) return part;
  part.since = events.front().at;
  std::string& out = stream_ ? part.bytes : whole_;
  for (Event& event : events) {
    if (auto* delta = std::get_if<engine::Delta>(&event.what)) {
      format_->delta(event.choice, std::move(*delta), out);
    } else if (auto* finish = std::get_if<engine::Finish>(&event.what)) {
      format_->finish(event.choice, *finish, out);
      if (++choices_finished_ == static_cast<int>(choices_.size())) {
        format_->end(out);
        part.end = true;
      }
    } else {
      // One choice's failure ends the whole answer; its siblings' events are of no use any more.
      const ApiError error = to_api_error(std::get<Error>(event.what));
      close();
      part.end = true;
      if (stream_ && (head_sent_ || !part.bytes.empty())) {
        part.bytes += "data: " + error_json(error) + "\n\n";
      } else {
        part.head = error_response(error);
        return part;
      }
      break;
    }
  }
  if (stream_ && !head_sent_ && !part.bytes.empty()) {
    head_sent_ = true;
    part.head = Response{.content_type = "text/event-stream; charset=utf-8",
                         .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                         .streamed = true};
  }
  if (!stream_ && part.end) part.head = Response{.body = std::move(whole_)};
  return part;
}

bool Generation::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void Generation::close() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    wake_ = nullptr;
    events_.clear();
    ids = take_running_locked();
  }
  cancel_all(ids);
}

void Generation::abort(Error error) {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || overflowed_) return;
    ids = take_running_locked();
    events_.push_back({0, std::move(error), clock_.now()});
    wake_locked();
  }
  cancel_all(ids);
}

}  // namespace tandem::server
