#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <boost/asio.hpp>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "server/api_error.h"
#include "server/connection.h"
#include "server/http_message.h"

namespace tandem::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

class AsioServer final : public HttpServer {
 public:
  AsioServer(const ServerOptions& options, Metrics& metrics, Handle handle)
      : options_(options),
        text_pool_(static_cast<std::size_t>(options.text_threads)),
        shared_{options_, metrics, std::move(handle), text_pool_, BodyBudget(options.max_body_bytes_total)},
        acceptor_(asio::make_strand(io_)) {}

  ~AsioServer() override { stop(); }

  Result<void> listen(BoundPort port) {
    raise_open_files();
    port_ = port.port();
    error_code error;
    if (acceptor_.assign(port.ipv6() ? tcp::v6() : tcp::v4(), port.release(), error); !error) acceptor_.listen(4096, error);
    if (!error) return {};
    return fail(ErrorKind::Io, fmt::format("[http] cannot listen on {} port {}: {}", options_.host, port_, error.message()), "--port");
  }

  std::uint16_t port() const override { return port_; }

  void run() override {
    asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
    for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { io_.run(); });
  }

  void set_draining() override {
    shared_.draining = true;
    for (const auto& connection : alive()) connection->close_if_idle();
  }

  int busy() const override { return shared_.busy; }

  void abort_answers(const Error& error) override {
    for (const auto& connection : alive()) connection->abort_answer(error);
  }

  void stop() override {
    if (std::exchange(stopped_, true)) return;
    // On the acceptor's strand, so that no connection comes after the sweep.
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      for (const auto& connection : alive()) connection->shut();
    });
    text_pool_.join();
    guard_.reset();
    // The coroutines end by themselves once their sockets are closed; then the loop has nothing left.
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(asio::make_strand(io_), kAwait);
      if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) break;
      if (error) {
        // Out of files, most likely: let some connections end first.
        log_warn("[http] accept: {}", error.message());
        asio::steady_timer pause(acceptor_.get_executor(), milliseconds(50));
        co_await pause.async_wait(kAwait);
        continue;
      }
      if (shared_.connections >= options_.max_connections) {
        const Response full = error_response({503, fmt::format("{} connections are open, which is the limit.", options_.max_connections),
                                              "server_error", "", "overloaded"});
        const std::string text = head_text(full, {.http10 = false, .keep_alive = false}) + full.body;
        error_code ignored;
        socket.non_blocking(true, ignored);
        socket.write_some(asio::buffer(text), ignored);
        continue;
      }
      const auto connection = Connection::make(std::move(socket), shared_);
      remember(connection);
      connection->start();
    }
  }

  // Connections are not owned here, only known. Dead entries are swept as the list doubles.
  void remember(const std::shared_ptr<Connection>& connection) {
    const std::lock_guard lock(mutex_);
    if (known_.size() >= sweep_at_) {
      std::erase_if(known_, [](const auto& weak) { return weak.expired(); });
      sweep_at_ = std::max<std::size_t>(64, known_.size() * 2);
    }
    known_.push_back(connection);
  }
  std::vector<std::shared_ptr<Connection>> alive() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Connection>> out;
    for (const auto& weak : known_)
      if (auto connection = weak.lock()) out.push_back(std::move(connection));
    return out;
  }

  // A stream is a file: the usual soft limit of 1,024 is too few, the hard one usually is not.
  static void raise_open_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }

  const ServerOptions options_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_ = asio::make_work_guard(io_);
  asio::thread_pool text_pool_;
  ConnectionHost shared_;
  tcp::acceptor acceptor_;
  std::uint16_t port_ = 0;
  std::vector<std::thread> threads_;
  bool stopped_ = false;
  std::mutex mutex_;  // of the two below
  std::vector<std::weak_ptr<Connection>> known_;
  std::size_t sweep_at_ = 64;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(const ServerOptions& options, BoundPort port, Metrics& metrics, Handle handle) {
  auto server = std::make_unique<AsioServer>(options, metrics, std::move(handle));
  TANDEM_TRY(server->listen(std::move(port)));
  return server;
}

}  // namespace tandem::server
