#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/bound_port.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/response_stream.h"

namespace tandem::server {

// Listens, speaks HTTP/1.1 and 1.0, and guards the limits of ServerOptions. What the answers are, it
// leaves to `handle`.
//
// Rules that clients notice: answers of one connection come in the order of its requests; a client
// that closes its side, even half of it, while an answer is pending has gone, and its request is
// cancelled.
//
// Threads: `io_threads` of its own plus `text_threads` for long bodies. `handle` runs on either,
// many at once. Lifetime: `stop` (or the destructor) closes all connections and joins the threads.
class HttpServer {
 public:
  using Handle = std::function<Answer(const Request&)>;

  // Listens on `port`; nothing is answered before `run`. `metrics` outlives the server.
  // Error: Io, with the address and the system's reason.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> open(const ServerOptions& options, BoundPort port, Metrics& metrics, Handle handle);
  virtual ~HttpServer() = default;

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  virtual void run() = 0;  // starts the threads, returns at once

  // Answers from now on carry Connection: close; idle connections are closed.
  virtual void set_draining() = 0;
  // Requests being read, worked on or answered.
  [[nodiscard]] virtual int busy() const = 0;
  // Ends every pending answer with `error`.
  virtual void abort_answers(const Error& error) = 0;
  virtual void stop() = 0;
};

}  // namespace tandem::server
