// A server over an engine that does what prompts tell it: slow answers, failures, fatal failures.
// For tests of what the real engine does only by accident. Options: name=value, see below.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/server.h"
#include "server/testing/fake_engine.h"
#include "server/testing/fake_text.h"

int main(int argc, char** argv) {
  using namespace tandem;
  server::ServerOptions options;
  options.port = 0;
  server::testing::FakeEngine::Options engine_options;
  server::ModelCard card{.names = {"fake", "fake/alias"}, .root = "", .created = 1700000000};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const long value = equals == std::string_view::npos ? 0 : std::atol(argv[i] + equals + 1);
    const auto ms = std::chrono::milliseconds(value);
    if (name == "port") options.port = static_cast<std::uint16_t>(value);
    else if (name == "slots") engine_options.slots = static_cast<int>(value);
    else if (name == "max_waiting") engine_options.max_waiting = static_cast<std::size_t>(value);
    else if (name == "max_context") engine_options.max_context = static_cast<std::int32_t>(value);
    else if (name == "header_limit_ms") options.header_limit = ms;
    else if (name == "body_limit_ms") options.body_limit = ms;
    else if (name == "idle_limit_ms") options.idle_limit = ms;
    else if (name == "behind_limit_ms") options.behind_limit = ms;
    else if (name == "behind_bytes") options.behind_bytes = static_cast<std::size_t>(value);
    else if (name == "drain_limit_ms") options.drain_limit = ms;
    else if (name == "failed_linger_ms") options.failed_linger = ms;
    else if (name == "max_connections") options.max_connections = static_cast<int>(value);
    else if (name == "max_body_bytes_total") options.max_body_bytes_total = static_cast<std::size_t>(value);
    else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  const server::testing::FakeText text;
  server::testing::FakeEngine engine(engine_options);
  auto port = server::BoundPort::bind(options.host, options.port);
  if (!port) {
    std::fprintf(stderr, "%s\n", port.error().message.c_str());
    return 1;
  }
  auto server = server::Server::start(options, std::move(*port), engine, text, card);
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  const auto ended = (*server)->run_until_stopped();
  return ended ? 0 : 1;
}
