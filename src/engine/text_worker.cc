#include "engine/text_worker.h"

#include <iterator>
#include <utility>

namespace tandem::engine {
namespace {

// About two seconds of 128 streams at 256 tokens/s each: far more than a worker that keeps up ever has.
constexpr std::size_t kMaxUnread = 65536;

bool empty(const Delta& delta) {
  return delta.text.empty() && delta.reasoning_text.empty() && delta.tokens.empty() &&
         delta.prompt_logprobs.empty();
}

}  // namespace

TextWorker::TextWorker(scheduler::Mailbox& mailbox) : mailbox_(mailbox) {}

void TextWorker::push(Message message) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  arrived_.notify_one();
}

void TextWorker::open(RequestId id, Output output, std::shared_ptr<EventSink> sink) {
  push(Open{id, std::make_unique<Output>(std::move(output)), std::move(sink)});
}

void TextWorker::forget(RequestId id) { push(Forget{id}); }

// Twice: at once for a client that work() knows, and in its place for one whose Open is still unread.
void TextWorker::mute(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    mutes_.push_back(id);
    has_mutes_.store(true, std::memory_order_relaxed);
    inbox_.emplace_back(Mute{id});
  }
  arrived_.notify_one();
}

void TextWorker::read_mutes() {
  if (!has_mutes_.load(std::memory_order_relaxed)) return;
  std::vector<RequestId> mutes;
  {
    std::lock_guard lock(mutex_);
    mutes.swap(mutes_);
    has_mutes_.store(false, std::memory_order_relaxed);
  }
  for (const RequestId id : mutes)
    if (auto at = clients_.find(id); at != clients_.end()) at->second.muted = true;
}

void TextWorker::post(std::function<void()> call) { push(std::move(call)); }

void TextWorker::on_updates(std::vector<scheduler::Update> updates) {
  {
    std::unique_lock lock(mutex_);
    read_.wait(lock, [&] { return inbox_.size() < kMaxUnread || closed_; });
    inbox_.insert(inbox_.end(), std::make_move_iterator(updates.begin()),
                  std::make_move_iterator(updates.end()));
  }
  arrived_.notify_one();
}

bool TextWorker::work(bool wait) {
  std::vector<Message> messages;
  {
    std::unique_lock lock(mutex_);
    if (wait) arrived_.wait(lock, [&] { return !inbox_.empty() || closed_; });
    messages.swap(inbox_);
  }
  read_.notify_one();
  for (Message& message : messages) handle(message);
  return !messages.empty();
}

void TextWorker::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_one();
  read_.notify_one();
}

void TextWorker::handle(Message& message) {
  if (auto* open = std::get_if<Open>(&message)) {
    clients_.emplace(open->id, Client{std::move(open->output), std::move(open->sink)});
  } else if (auto* forget = std::get_if<Forget>(&message)) {
    clients_.erase(forget->id);
  } else if (auto* mute = std::get_if<Mute>(&message)) {
    if (auto at = clients_.find(mute->id); at != clients_.end()) at->second.muted = true;
  } else if (auto* call = std::get_if<std::function<void()>>(&message)) {
    (*call)();
  } else {
    update(std::get<scheduler::Update>(message));
  }
}

void TextWorker::update(scheduler::Update& update) {
  read_mutes();
  const auto at = clients_.find(update.request);
  if (at == clients_.end()) return;
  Client& client = at->second;
  Output& output = *client.output;
  const bool ends = update.end.has_value();
  const bool failed = ends && update.end->reason == scheduler::EndReason::Error;
  if (!client.muted && !failed) {
    Delta delta;
    if (update.token) {
      const bool by_end_id = ends && update.end->reason == scheduler::EndReason::EndId;
      const bool stops = output.push(*update.token, by_end_id, delta);
      if (stops && !ends) mailbox_.stop_at(update.request, output.counted() - 1);
    }
    for (const ops::TokenChoice& choice : update.prompt_logprobs)
      delta.prompt_logprobs.push_back(logprob_of(choice));
    if (ends) output.flush(delta);
    if (!empty(delta)) client.sink->on_delta(update.request, std::move(delta));
  }
  if (!ends) return;
  end(update.request, client, *update.end);
  clients_.erase(at);
}

void TextWorker::end(RequestId id, Client& client, scheduler::End& end) {
  if (client.muted && end.reason != scheduler::EndReason::Error) {
    // It ended by itself while the cancellation was under way, but its client did not get all of it.
    end.reason = scheduler::EndReason::Error;
    end.error = {ErrorKind::Cancelled, "the request was cancelled"};
  }
  if (end.reason == scheduler::EndReason::Error) {
    (end.error.kind == ErrorKind::Cancelled ? cancelled_ : failed_).fetch_add(1, std::memory_order_relaxed);
    client.sink->on_failure(id, std::move(end.error));
    return;
  }
  Finish finish = client.output->finish(end);
  (finish.reason == FinishReason::Stop ? stop_ : length_).fetch_add(1, std::memory_order_relaxed);
  client.sink->on_finish(id, std::move(finish));
}

TextWorker::Counts TextWorker::counts() const {
  return {stop_.load(std::memory_order_relaxed), length_.load(std::memory_order_relaxed),
          cancelled_.load(std::memory_order_relaxed), failed_.load(std::memory_order_relaxed)};
}

}  // namespace tandem::engine
