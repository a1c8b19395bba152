#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <set>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/generation_defaults.h"
#include "cli/progress_bar.h"
#include "cli/replica_flags.h"
#include "engine/make_engine.h"
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
  double drain_seconds = 60;
  bool check = false;
};

// Every start-up refusal of ranks and engine, before any weight is read (R6).
Result<executor::StartPlan> plan_replica(Replica& replica) {
  TANDEM_ASSIGN(executor::StartPlan made, executor::plan_start(replica.executor));
  replica.engine.mixed = made.mixed;
  TANDEM_TRY(engine::check_options(replica.engine, {.slots = made.limits.slots,
                                                    .pages = made.limits.pages,
                                                    .max_context = made.limits.max_context,
                                                    .max_step_tokens = made.max_step_tokens,
                                                    .max_mixed_tokens = made.max_mixed_tokens,
                                                    .vocab = made.geometry.vocab}));
  return made;
}

Result<int> check(const ServeFlags& flags) {
  TANDEM_ASSIGN(Replica replica, to_options(flags.replica));
  TANDEM_ASSIGN(const executor::StartPlan plan, plan_replica(replica));
  std::fputs(memory::plan_text(plan.request, plan.capacity).c_str(), stdout);
  std::puts("start-up would not refuse this");
  return 0;
}

std::vector<TokenId> end_ids(const model::Geometry& geometry, const text::Tokenizer& tokenizer) {
  std::set<TokenId> ids(geometry.eos_ids.begin(), geometry.eos_ids.end());
  if (tokenizer.eos()) ids.insert(*tokenizer.eos());
  return {ids.begin(), ids.end()};
}

Result<int> serve(ServeFlags flags) {
  const auto begin = std::chrono::steady_clock::now();
  TANDEM_ASSIGN(Replica replica, to_options(flags.replica));
  const std::filesystem::path folder = replica.executor.model;
  TANDEM_ASSIGN(const executor::StartPlan plan, plan_replica(replica));
  TANDEM_ASSIGN(const server::TextTools text, server::TextTools::load(folder));
  replica.executor.tokens_with_text = text.tokenizer().vocab_size();

  ProgressBar bar("loading " + folder.filename().string());
  auto started = executor::start_executor(replica.executor, [&bar](const executor::StartProgress& progress) {
    bar.show(progress.done_bytes, progress.total_bytes);
  });
  bar.finish();
  if (!started) return fail(std::move(started.error()));
  replica.engine.steps_in_flight = replica.executor.max_in_flight;
  const std::vector<TokenId> ends = end_ids(plan.geometry, text.tokenizer());
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine,
                engine::make_engine(replica.engine, std::move(*started), text.tokenizer(), ends));

  server::ModelCard card;
  card.names = flags.served_names;
  if (card.names.empty()) card.names.push_back(std::filesystem::absolute(folder).lexically_normal().filename().string());
  card.root = folder.string();
  card.created = std::time(nullptr);
  card.processed_logprobs = flags.replica.logprobs_mode == "processed";
  TANDEM_ASSIGN(card.sampling, read_sampling_defaults(folder));
  flags.server.drain_limit = std::chrono::milliseconds(static_cast<std::int64_t>(flags.drain_seconds * 1000));
  TANDEM_ASSIGN(const std::unique_ptr<server::Server> server, server::Server::start(flags.server, *engine, text, card));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log_info("ready in {:.2f} s: {} at http://{}:{}/ (chat page; API under /v1)", seconds, card.names.front(), flags.server.host,
           server->port());

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
  command->set_config("--config", "", "Read flags from a TOML file");
  command->add_option("--host", flags->server.host, "Address to listen on")->capture_default_str()->envname("TANDEM_HOST");
  command->add_option("--port", flags->server.port, "Port to listen on; 0 lets the system choose")->capture_default_str()->envname("TANDEM_PORT");
  command->add_option("--served-model-name", flags->served_names, "Names that requests may use (default: the folder's)")->delimiter(',');
  command->add_option("--io-threads", flags->server.io_threads, "Threads for connections")->capture_default_str();
  command->add_option("--text-threads", flags->server.text_threads, "Threads that tokenize long prompts")->capture_default_str();
  command->add_option("--max-body-bytes", flags->server.max_body_bytes, "Largest request body")->capture_default_str();
  command->add_option("--max-connections", flags->server.max_connections, "Open connections; more are answered 503")->capture_default_str();
  command->add_option("--drain-seconds", flags->drain_seconds, "How long requests may go on after SIGTERM")->capture_default_str();
  command->add_flag("--check", flags->check, "Only run the start-up refusals and print the memory plan");
  command->callback([flags, &action] {
    action = [flags]() -> Result<int> { return flags->check ? check(*flags) : serve(*flags); };
  });
}

}  // namespace tandem::cli
