#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/generation_defaults.h"
#include "cli/model_folder.h"
#include "cli/ranges.h"
#include "cli/start_replica.h"
#include "server/server.h"
#include "server/text_tools.h"

namespace tandem::cli {
namespace {

constexpr char kExamples[] =
    "Serves a model over HTTP with an OpenAI-compatible API; the chat page is at /.\n\n"
    "  tandem serve                                    the bundled model on http://127.0.0.1:8000\n"
    "  tandem serve ~/models/Qwen3.5-4B --device cuda --tp 2 --host 0.0.0.0\n"
    "  tandem serve ~/models/Qwen3.5-0.8B --max-requests 4 --max-context 8192\n"
    "  tandem serve MODEL --tp 3 --check               only what start-up would refuse\n\n"
    "Any flag may stand in a TOML file under the same name: tandem serve --config tandem.toml";

struct ServeFlags {
  ReplicaFlags replica;
  server::ServerOptions server;
  std::vector<std::string> served_names;
  bool check = false;
};

// All that is refused before a weight is read, and what it found.
struct Planned {
  PlannedReplica replica;
  server::ServerOptions options;
  server::ModelCard card;
  server::TextTools text;
};

Result<Planned> plan(const ServeFlags& flags) {
  TANDEM_ASSIGN(PlannedReplica replica, plan_replica(flags.replica));
  const std::filesystem::path folder = replica.options.executor.model;
  server::ServerOptions options = flags.server;
  options.max_body_bytes_total = std::max(options.max_body_bytes_total, options.max_body_bytes);
  server::ModelCard card;
  card.names = flags.served_names;
  if (card.names.empty()) card.names.push_back(folder_name(folder));
  card.root = folder.string();
  card.processed_logprobs = flags.replica.logprobs_mode == "processed";
  TANDEM_TRY(server::Server::check(options, card.names));
  TANDEM_ASSIGN(card.sampling, read_sampling_defaults(folder));
  TANDEM_ASSIGN(server::TextTools text, server::TextTools::load(folder));
  TANDEM_TRY(check_tokenizer(replica, text.tokenizer()));
  return Planned{std::move(replica), std::move(options), std::move(card), std::move(text)};
}

// Not whether the port is free: the service that is checked for may be running.
Result<int> check(const ServeFlags& flags) {
  TANDEM_ASSIGN(const Planned planned, plan(flags));
  TANDEM_TRY(server::BoundPort::check(flags.server.host, flags.server.port));
  std::fputs(memory::plan_text(planned.replica.plan.request, planned.replica.plan.capacity).c_str(), stdout);
  std::puts("start-up would not refuse this");
  return 0;
}

Result<int> serve(const ServeFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  std::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads any more is no reason to end
  TANDEM_ASSIGN(Planned planned, plan(flags));
  TANDEM_ASSIGN(server::BoundPort port, server::BoundPort::bind(flags.server.host, flags.server.port));
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine, start_replica(std::move(planned.replica), planned.text.tokenizer()));
  planned.card.created = std::time(nullptr);
  TANDEM_ASSIGN(const std::unique_ptr<server::Server> server,
                server::Server::start(planned.options, std::move(port), *engine, planned.text, planned.card));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log_info("ready in {:.2f} s: {} at {}/ (chat page; API under /v1)", seconds, planned.card.names.front(),
           server::url_of(flags.server.host, server->port()));

  const Result<void> served = server->run_until_stopped();
  const Result<void> stopped = engine->stop();
  if (!served) return fail(served.error());
  if (!stopped) return fail(stopped.error());
  log_info("stopped");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* const command = app.add_subcommand("serve", kExamples);
  flags->replica.add(*command);
  command->add_option("--host", flags->server.host, "Address to listen on")->capture_default_str()->envname("TANDEM_HOST");
  command->add_option("--port", flags->server.port, "Port to listen on; 0 lets the system choose")->check(whole_number(0, 65535))->capture_default_str()->envname("TANDEM_PORT");
  command->add_option("--served-model-name", flags->served_names, "Names that requests may use (default: the folder's)")->delimiter(',');
  command->add_option("--io-threads", flags->server.io_threads, "Threads for connections")->capture_default_str();
  command->add_option("--text-threads", flags->server.text_threads, "Threads that tokenize long prompts")->capture_default_str();
  command->add_option("--max-body-bytes", flags->server.max_body_bytes, "Largest request body")->capture_default_str();
  command->add_option("--max-connections", flags->server.max_connections, "Open connections; more are answered 503")->capture_default_str();
  command->add_option_function<double>("--drain-seconds", [flags](const double& seconds) {
        flags->server.drain_limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
      }, "How long requests may go on after SIGTERM (default 60)")->check(number(0, 86400));
  command->add_flag("--check", flags->check, "Only run the start-up refusals and print the memory plan");
  add_config_flag(*command);
  command->callback([flags, &action] {
    action = [flags]() -> Result<int> { return flags->check ? check(*flags) : serve(*flags); };
  });
}

}  // namespace tandem::cli
