#include <condition_variable>
#include <mutex>
#include <optional>

#include "cli/bench/target.h"

namespace tandem::cli::bench {
namespace {

// Notes when tokens come; wakes the thread that waits for the end.
class Watch final : public engine::EventSink {
 public:
  void on_delta(RequestId, engine::Delta delta) override {
    const Time now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    tokens_.insert(tokens_.end(), delta.tokens.size(), now);
  }
  void on_finish(RequestId, engine::Finish) override { end(std::nullopt); }
  void on_failure(RequestId, Error error) override { end(std::move(error)); }

  Result<std::vector<Time>> wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return done_; });
    if (error_) return fail(*error_);
    return std::move(tokens_);
  }

 private:
  void end(std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_ = true;
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Time> tokens_;
  std::optional<Error> error_;
  bool done_ = false;
};

class EngineTarget final : public Target {
 public:
  explicit EngineTarget(engine::Engine& engine) : engine_(engine) {}

  Result<Timeline> run(const BenchRequest& request) override {
    engine::Request wanted;
    wanted.prompt = request.prompt;
    wanted.max_tokens = request.output_tokens;
    wanted.ignore_eos = true;
    wanted.sampling.temperature = 0.0f;
    const auto watch = std::make_shared<Watch>();
    Timeline timeline{.sent = std::chrono::steady_clock::now(), .tokens = {}, .prompt_tokens = static_cast<int>(request.prompt.size())};
    TANDEM_TRY(engine_.submit(std::move(wanted), watch));
    TANDEM_ASSIGN(timeline.tokens, watch->wait());
    return timeline;
  }

 private:
  engine::Engine& engine_;
};

}  // namespace

std::unique_ptr<Target> make_engine_target(engine::Engine& engine) { return std::make_unique<EngineTarget>(engine); }

}  // namespace tandem::cli::bench
