#include "server/server.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "base/version.h"
#include "server/api.h"
#include "server/http_server.h"
#include "server/signal_watch.h"

namespace tandem::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the engine's state and the drain are looked at, and how long error answers may take to
// get out before connections are closed.
constexpr milliseconds kLook{50};
constexpr milliseconds kLastWords{1000};

Result<void> within(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return fail(ErrorKind::Invalid, fmt::format("[http] --{} {}; {} to {} works", flag, value, least, most), std::string(flag));
}

constexpr std::int64_t kMostThreads = 1024;
constexpr std::int64_t kLeastBody = 1 << 10, kMostBody = 1 << 30;
constexpr std::int64_t kMostConnections = 1 << 20;
constexpr milliseconds kLongestDrain = std::chrono::hours(24);

class ServerImpl final : public Server {
 public:
  ServerImpl(ServerOptions options, engine::Engine& engine, const PromptText& text, ModelCard card)
      : options_(std::move(options)),
        card_(std::move(card)),
        engine_(engine),
        metrics_(std::make_shared<Metrics>(card_.names.front(), std::string(version()))),
        api_(options_, engine_, text, card_, metrics_) {}

  ~ServerImpl() override {
    signals_.reset();
    if (http_) http_->stop();
  }

  Result<void> open(BoundPort port) {
    TANDEM_ASSIGN(http_, HttpServer::open(options_, std::move(port), *metrics_, [this](const Request& request) { return api_.handle(request); }));
    if (options_.handle_signals) {
      signals_ = SignalWatch::start([this](int number) { on_signal(number); });
    }
    http_->run();
    // Tests and scripts read the port from this line.
    log_info("[http] listening on {}", url_of(options_.host, http_->port()));
    return {};
  }

  std::uint16_t port() const override { return http_->port(); }

  Result<void> run_until_stopped() override {
    std::unique_lock lock(mutex_);
    while (wish_ == Wish::Serve && engine_.state() != engine::State::Failed) changed_.wait_for(lock, kLook);
    if (engine_.state() == engine::State::Failed) return end_failed(lock);
    const auto limit = steady_clock::now() + options_.drain_limit;
    while (wish_ == Wish::Drain && http_->busy() > 0 && steady_clock::now() < limit) {
      if (engine_.state() == engine::State::Failed) return end_failed(lock);
      changed_.wait_for(lock, kLook);
    }
    if (const int busy = http_->busy(); busy > 0) {
      log_warn("[http] {} requests are ended {}", busy, wish_ == Wish::Stop ? "by the stop" : "at the drain limit");
      api_.set_draining();
      http_->abort_answers({ErrorKind::Cancelled, "The server was shut down before the answer was complete."});
      await_last_words(lock);
    }
    lock.unlock();
    http_->stop();
    return {};
  }

  void drain() override {
    const std::lock_guard lock(mutex_);
    if (wish_ != Wish::Serve) return;
    wish_ = Wish::Drain;
    api_.set_draining();
    http_->set_draining();
    engine_.drain();
    changed_.notify_all();
  }

  void stop() override {
    drain();
    const std::lock_guard lock(mutex_);
    wish_ = Wish::Stop;
    changed_.notify_all();
  }

 private:
  enum class Wish { Serve, Drain, Stop };

  void on_signal(int number) {
    bool again = false;
    {
      const std::lock_guard lock(mutex_);
      again = wish_ != Wish::Serve;
    }
    log_info("[http] signal {}: {}", number, again ? "stopping" : "draining; a second one stops");
    again ? stop() : drain();
  }

  Result<void> end_failed(std::unique_lock<std::mutex>& lock) {
    const auto failure = engine_.failure();
    const Error error = failure.value_or(Error{ErrorKind::Poisoned, "the engine failed for an unknown reason"});
    log_error("[http] the engine failed: {}; new requests get 503, the process ends in {} ms", error.message,
              options_.failed_linger.count());
    const auto until = steady_clock::now() + options_.failed_linger;
    while (wish_ == Wish::Serve && steady_clock::now() < until) changed_.wait_for(lock, kLook);
    lock.unlock();
    http_->stop();
    return fail(error);
  }

  void await_last_words(std::unique_lock<std::mutex>& lock) {
    const auto until = steady_clock::now() + kLastWords;
    while (http_->busy() > 0 && steady_clock::now() < until) changed_.wait_for(lock, milliseconds(5));
  }

  const ServerOptions options_;
  const ModelCard card_;
  engine::Engine& engine_;
  const std::shared_ptr<Metrics> metrics_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<SignalWatch> signals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Wish wish_ = Wish::Serve;
};

}  // namespace

Result<void> Server::check(const ServerOptions& options, const std::vector<std::string>& names) {
  if (names.empty()) return fail(ErrorKind::Invalid, "[http] no served model name is given", "served-model-name");
  for (const std::string& name : names)
    if (name.empty()) return fail(ErrorKind::Invalid, "[http] --served-model-name has an empty name; A,B serves two", "served-model-name");
  TANDEM_TRY(within("io-threads", options.io_threads, 1, kMostThreads));
  TANDEM_TRY(within("text-threads", options.text_threads, 1, kMostThreads));
  TANDEM_TRY(within("max-connections", options.max_connections, 1, kMostConnections));
  TANDEM_TRY(within("max-body-bytes", static_cast<std::int64_t>(options.max_body_bytes), kLeastBody, kMostBody));
  TANDEM_TRY(within("drain-seconds", options.drain_limit.count() / 1000, 0, kLongestDrain.count() / 1000));
  if (options.max_choices < 1) return fail(ErrorKind::Invalid, "[http] max_choices must be at least 1");
  return {};
}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, BoundPort port, engine::Engine& engine, const PromptText& text,
                                              ModelCard card) {
  TANDEM_TRY(check(options, card.names));
  auto server = std::make_unique<ServerImpl>(std::move(options), engine, text, std::move(card));
  TANDEM_TRY(server->open(std::move(port)));
  return server;
}

}  // namespace tandem::server
