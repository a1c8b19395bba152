#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

// A sink that keeps everything, for tests. Header only; nothing but tests includes it.
namespace tandem::engine {

class RecordingSink final : public EventSink {
 public:
  struct Record {
    std::vector<Delta> deltas;
    std::optional<Finish> finish;
    std::optional<Error> failure;
    int ends = 0;

    [[nodiscard]] std::string text() const {
      std::string all;
      for (const Delta& delta : deltas) all += delta.text;
      return all;
    }
    [[nodiscard]] std::string reasoning() const {
      std::string all;
      for (const Delta& delta : deltas) all += delta.reasoning_text;
      return all;
    }
    [[nodiscard]] std::vector<TokenId> tokens() const {
      std::vector<TokenId> all;
      for (const Delta& delta : deltas) all.insert(all.end(), delta.tokens.begin(), delta.tokens.end());
      return all;
    }
    [[nodiscard]] std::vector<TokenLogprob> logprobs() const {
      std::vector<TokenLogprob> all;
      for (const Delta& delta : deltas) all.insert(all.end(), delta.logprobs.begin(), delta.logprobs.end());
      return all;
    }
  };

  void on_delta(RequestId, Delta delta) override {
    std::lock_guard lock(mutex_);
    record_.deltas.push_back(std::move(delta));
    changed_.notify_all();
  }
  void on_finish(RequestId, Finish finish) override {
    std::lock_guard lock(mutex_);
    record_.finish = std::move(finish);
    record_.ends += 1;
    changed_.notify_all();
  }
  void on_failure(RequestId, Error error) override {
    std::lock_guard lock(mutex_);
    record_.failure = std::move(error);
    record_.ends += 1;
    changed_.notify_all();
  }

  // Blocks until the terminal event.
  [[nodiscard]] Record wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return record_.ends > 0; });
    return record_;
  }
  // Blocks until there are that many deltas.
  void wait_for_deltas(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return record_.deltas.size() >= count || record_.ends > 0; });
  }
  [[nodiscard]] Record now() {
    std::lock_guard lock(mutex_);
    return record_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Record record_;
};

}  // namespace tandem::engine
