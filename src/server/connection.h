#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>

#include "base/result.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/options.h"

namespace tandem::server {

// Bytes of the bodies of all connections, which share one budget. Thread: any.
class BodyBudget {
 public:
  explicit BodyBudget(std::size_t most) : most_(most) {}
  bool take(std::size_t bytes) {
    if (held_.fetch_add(bytes) + bytes <= most_) return true;
    held_.fetch_sub(bytes);
    return false;
  }
  void give(std::size_t bytes) { held_.fetch_sub(bytes); }

 private:
  const std::size_t most_;
  std::atomic<std::size_t> held_ = 0;
};

// What a connection needs of the server around it, which outlives it.
struct ConnectionHost {
  const ServerOptions& options;
  Metrics& metrics;
  const HttpServer::Handle handle;
  boost::asio::thread_pool& text_pool;
  BodyBudget budget;
  std::atomic<bool> draining = false;
  std::atomic<int> busy = 0;  // requests being read, worked on or answered
  std::atomic<int> connections = 0;
  std::atomic<int> open_answers = 0;
};

// One connection: reads requests, hands them to `handle`, writes the answers in their order. It keeps itself alive
// until it is over. Thread: any, all methods; the work runs on the socket's executor, a strand.
class Connection {
 public:
  [[nodiscard]] static std::shared_ptr<Connection> make(boost::asio::ip::tcp::socket socket, ConnectionHost& host);
  virtual ~Connection() = default;

  virtual void start() = 0;
  virtual void close_if_idle() = 0;
  virtual void abort_answer(Error error) = 0;  // ends a pending answer with it
  virtual void shut() = 0;
};

}  // namespace tandem::server
