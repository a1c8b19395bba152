#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/bound_port.h"
#include "server/model_card.h"
#include "server/options.h"
#include "server/prompt_text.h"

namespace tandem::server {

// Serves an engine over HTTP: the OpenAI paths, health, metrics and the chat page.
//
// Thread: start, run_until_stopped and the destructor on one thread; drain and stop on any. Lifetime:
// engine and text outlive the server, which does not stop the engine.
class Server {
 public:
  // Listens on `port`, which was bound for `options`, and answers from its return on.
  // Errors: Io (the address), and those of check().
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(ServerOptions options, BoundPort port, engine::Engine& engine,
                                                             const PromptText& text, ModelCard card);
  // What start() would refuse of them. Error: Invalid, with the option, its value and what works.
  [[nodiscard]] static Result<void> check(const ServerOptions& options, const std::vector<std::string>& names);
  virtual ~Server() = default;

  [[nodiscard]] virtual std::uint16_t port() const = 0;  // the real one

  // Blocks until the server has been drained or stopped, and answers until then. With
  // handle_signals, the first SIGTERM or SIGINT drains and the second stops.
  // Error: the engine's failure, some seconds after it, so that probes see 503 first (R3.5); the
  // process is to end non-zero.
  [[nodiscard]] virtual Result<void> run_until_stopped() = 0;

  // Refuses new requests with 503 and lets those in flight end; at ServerOptions::drain_limit the
  // rest get an error. Returns at once.
  virtual void drain() = 0;
  // Ends everything in flight with an error, now. Returns at once.
  virtual void stop() = 0;
};

}  // namespace tandem::server
