#pragma once

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "server/testing/fake_text.h"
#include "text/utf8.h"

namespace tandem::server::testing {

// An engine for tests that says what it is told to. A prompt may hold @@{…}@@ with
//   "say": text to answer (else a fixed sentence), "delay_ms": pause before each token,
//   "fail_after": tokens before an Internal failure, "poison_after": tokens before a fatal one.
// Its events come from one thread, in order, as the real one's do.
class FakeEngine final : public engine::Engine {
 public:
  struct Options {
    int slots = 64;
    std::size_t max_waiting = 8192;
    std::int32_t max_context = 32768;
    std::int32_t default_max_tokens = 256;
  };

  explicit FakeEngine(Options options) : options_(options), thread_([this] { loop(); }) {}
  FakeEngine() : FakeEngine(Options{}) {}
  ~FakeEngine() override { (void)stop(); }

  Result<RequestId> submit(engine::Request request, std::shared_ptr<engine::EventSink> sink) override {
    const std::lock_guard lock(mutex_);
    if (state_ == engine::State::Failed) return fail(ErrorKind::Poisoned, "[engine] " + failure_->message);
    if (state_ != engine::State::Ready) return fail(ErrorKind::Cancelled, "[engine] draining");
    const auto prompt = static_cast<std::int32_t>(request.prompt.size());
    if (request.max_tokens && prompt + *request.max_tokens > options_.max_context) {
      return fail(ErrorKind::Capacity, fmt::format("prompt of {} tokens + max_tokens = {} is more than the context of {}", prompt,
                                                   *request.max_tokens, options_.max_context), "max_tokens");
    }
    if (waiting_.size() >= options_.max_waiting) return fail(ErrorKind::Overloaded, "[engine] the queue is full");
    Active active = plan(std::move(request), std::move(sink));
    active.id = RequestId{++last_id_};
    const RequestId id = active.id;
    waiting_.push_back(std::move(active));
    changed_.notify_all();
    return id;
  }
  void cancel(RequestId request) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(request);
    changed_.notify_all();
  }
  engine::Load load() const override {
    const std::lock_guard lock(mutex_);
    engine::Load load = counts_;
    load.running = static_cast<std::int32_t>(running_.size());
    load.waiting = static_cast<std::int32_t>(waiting_.size());
    load.slots = options_.slots;
    load.slots_used = load.running;
    return load;
  }
  engine::State state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  std::optional<Error> failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  std::int32_t max_context() const override { return options_.max_context; }
  std::int32_t vocab() const override { return kFakeVocab; }
  void drain() override {
    const std::lock_guard lock(mutex_);
    if (state_ == engine::State::Ready) state_ = engine::State::Draining;
  }
  Result<void> stop() override {
    {
      const std::lock_guard lock(mutex_);
      if (state_ != engine::State::Failed) state_ = engine::State::Stopped;
      ending_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    return {};
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Active {
    RequestId id{};
    engine::Request request;
    std::shared_ptr<engine::EventSink> sink;
    std::string say;
    std::vector<TokenId> reply;  // what will be generated, the end id included
    engine::FinishReason reason = engine::FinishReason::Stop;
    std::optional<std::string> stop_text;
    std::size_t text_bytes = 0;   // of the reply's bytes that are shown
    std::chrono::milliseconds delay{0};
    std::int64_t fail_after = -1, poison_after = -1;
    std::size_t done = 0, given = 0;
    Clock::time_point next{};
    text::Utf8Stream utf8;
  };

  Active plan(engine::Request request, std::shared_ptr<engine::EventSink> sink) {
    Active active;
    const std::string prompt = text_.decode(request.prompt, false);
    active.say = "The quick brown fox jumps over the lazy dog.";
    if (const auto end = prompt.rfind("}@@"); end != std::string::npos) {
      const auto begin = prompt.rfind("@@{", end);
      const auto script = boost::json::parse(prompt.substr(begin + 2, end - begin - 1)).as_object();
      if (const auto* say = script.if_contains("say")) active.say = say->as_string();
      if (const auto* delay = script.if_contains("delay_ms")) active.delay = std::chrono::milliseconds(delay->as_int64());
      if (const auto* after = script.if_contains("fail_after")) active.fail_after = after->as_int64();
      if (const auto* after = script.if_contains("poison_after")) active.poison_after = after->as_int64();
    }
    std::int32_t limit = request.max_tokens.value_or(options_.default_max_tokens);
    for (const unsigned char c : active.say) active.reply.push_back(c);
    if (request.ignore_eos || request.sampling.min_tokens > static_cast<int>(active.reply.size())) {
      const std::vector<TokenId> once = active.reply;
      while (static_cast<std::int32_t>(active.reply.size()) < limit) active.reply.insert(active.reply.end(), once.begin(), once.end());
    }
    active.reply.push_back(kFakeEnd);
    if (static_cast<std::int32_t>(active.reply.size()) > limit) {
      active.reply.resize(static_cast<std::size_t>(limit));
      active.reason = engine::FinishReason::Length;
    }
    std::string bytes;
    for (const TokenId id : active.reply)
      if (id < 256) bytes += static_cast<char>(id);
    active.text_bytes = bytes.size();
    for (const std::string& stop : request.stop) {
      const auto at = bytes.find(stop);
      if (at == std::string::npos) continue;
      active.text_bytes = request.include_stop ? at + stop.size() : at;
      active.reply.resize(at + stop.size());
      active.reason = engine::FinishReason::Stop;
      active.stop_text = stop;
      bytes.resize(at + stop.size());
    }
    active.request = std::move(request);
    active.sink = std::move(sink);
    return active;
  }

  engine::TokenLogprob logprob(TokenId id) const {
    engine::TokenLogprob out{.id = id, .logprob = -0.5f, .top = {{id, -0.5f}}};
    for (TokenId other = 0; other < 25; ++other) out.top.emplace_back((id + 1 + other) % 256, -1.0f - static_cast<float>(other));
    out.top.back().second = -std::numeric_limits<float>::infinity();
    return out;
  }

  // One token of one request. Returns true if it has ended.
  bool advance(Active& a, bool& poison) {
    if (a.fail_after >= 0 && static_cast<std::int64_t>(a.done) >= a.fail_after) {
      a.sink->on_failure(a.id, {ErrorKind::Device, "[fake] a logit was not finite"});
      return true;
    }
    if (a.poison_after >= 0 && static_cast<std::int64_t>(a.done) >= a.poison_after) {
      poison = true;
      return false;
    }
    engine::Delta delta;
    const TokenId id = a.reply[a.done];
    if (a.done == 0 && a.request.prompt_logprobs >= 0) {
      for (std::size_t i = 1; i < a.request.prompt.size(); ++i) delta.prompt_logprobs.push_back(cut(logprob(a.request.prompt[i]), a.request.prompt_logprobs));
    }
    delta.tokens.push_back(id);
    if (a.request.logprobs >= 0) delta.logprobs.push_back(cut(logprob(id), a.request.logprobs));
    if (id < 256 && a.done < a.text_bytes) {
      a.utf8.push(std::string(1, static_cast<char>(id)), delta.text);
    }
    ++a.done;
    const bool end = a.done >= a.reply.size();
    a.sink->on_delta(a.id, std::move(delta));
    if (!end) return false;
    engine::Finish finish{.reason = a.reason,
                          .usage = {static_cast<std::int32_t>(a.request.prompt.size()), static_cast<std::int32_t>(a.done)},
                          .stop_text = a.stop_text};
    if (id == kFakeEnd) finish.stop_token = id;
    a.sink->on_finish(a.id, finish);
    return true;
  }
  static engine::TokenLogprob cut(engine::TokenLogprob entry, int top) {
    entry.top.resize(std::min(entry.top.size(), static_cast<std::size_t>(top)));
    return entry;
  }

  void drop_cancelled(std::unique_lock<std::mutex>& lock) {
    const std::vector<RequestId> ids = std::exchange(cancelled_, {});
    for (const RequestId id : ids) {
      std::optional<Active> found;
      for (auto it = waiting_.begin(); it != waiting_.end() && !found; ++it) {
        if (it->id != id) continue;
        found = std::move(*it);
        waiting_.erase(it);
        break;
      }
      if (const auto it = running_.find(id); !found && it != running_.end()) {
        found = std::move(it->second);
        running_.erase(it);
      }
      if (!found) continue;
      ++counts_.requests_cancelled;
      lock.unlock();
      found->sink->on_failure(id, {ErrorKind::Cancelled, "[fake] cancelled"});
      lock.lock();
    }
  }

  void fail_all(std::unique_lock<std::mutex>& lock, const Error& error) {
    std::vector<Active> all;
    for (auto& [id, active] : running_) all.push_back(std::move(active));
    for (Active& active : waiting_) all.push_back(std::move(active));
    running_.clear();
    waiting_.clear();
    lock.unlock();
    for (Active& active : all) active.sink->on_failure(active.id, error);
    lock.lock();
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      drop_cancelled(lock);
      while (!waiting_.empty() && static_cast<int>(running_.size()) < options_.slots) {
        Active active = std::move(waiting_.front());
        waiting_.pop_front();
        counts_.prompt_tokens += active.request.prompt.size();
        active.next = Clock::now() + active.delay;
        const RequestId id = active.id;
        running_.emplace(id, std::move(active));
      }
      Clock::time_point wake = Clock::now() + std::chrono::seconds(1);
      std::vector<RequestId> due;
      for (auto& [id, active] : running_) {
        if (active.next <= Clock::now()) due.push_back(id);
        wake = std::min(wake, active.next);
      }
      bool poison = false;
      for (const RequestId id : due) {
        Active& active = running_.at(id);
        active.next = Clock::now() + active.delay;
        ++counts_.generated_tokens;
        lock.unlock();
        const bool ended = advance(active, poison);
        lock.lock();
        if (ended) running_.erase(id);
      }
      if (poison) {
        state_ = engine::State::Failed;
        failure_ = Error{ErrorKind::Poisoned, "[fake] rank 1 failed"};
        fail_all(lock, *failure_);
      }
      if (due.empty() && cancelled_.empty()) changed_.wait_until(lock, wake);
    }
    fail_all(lock, {ErrorKind::Cancelled, "[fake] the engine was stopped"});
  }

  const Options options_;
  const FakeText text_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_id_ = 0;
  std::deque<Active> waiting_;
  std::map<RequestId, Active> running_;
  std::vector<RequestId> cancelled_;
  engine::Load counts_;
  engine::State state_ = engine::State::Ready;
  std::optional<Error> failure_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tandem::server::testing
