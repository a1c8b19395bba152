#include <cstdlib>
#include <memory>

#include "cli/chat/session.h"
#include "cli/commands.h"
#include "cli/ranges.h"

namespace tandem::cli {
namespace {

constexpr char kExamples[] =
    "Talks with a model at the terminal.\n\n"
    "  tandem chat                                     the bundled model, in this process\n"
    "  tandem chat ~/models/Qwen3.5-0.8B --thinking\n"
    "  tandem chat --url http://gpu-host:8000          any OpenAI-compatible server\n"
    "  echo 'What is 17 + 25?' | tandem chat           one answer for each line";

struct ChatFlags {
  ReplicaFlags replica;
  std::string url, served, key, system;
  chat::Settings settings;
};

Result<int> talk(const ChatFlags& flags) {
  chat::catch_interrupts();
  TANDEM_ASSIGN(const std::unique_ptr<chat::Answerer> answerer, flags.url.empty() ? chat::make_engine_answerer(flags.replica)
                                                                                   : chat::make_http_answerer(flags.url, flags.served, flags.key));
  chat::Terminal terminal;
  chat::Session session(*answerer, terminal, flags.system, flags.settings);
  return session.run();
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ChatFlags>();
  flags->replica.log_level = "warn";
  CLI::App* const command = app.add_subcommand("chat", kExamples);
  flags->replica.add(*command);
  command->add_option("--url", flags->url, "Talk to this server instead of loading a model: http://HOST[:PORT]");
  command->add_option("--model-name", flags->served, "With --url: the served name to ask for (default: the server's first)");
  command->add_option("--api-key", flags->key, "With --url: sent as bearer token")->envname("TANDEM_API_KEY");
  command->add_option("--system", flags->system, "System prompt");
  command->add_flag("--thinking", flags->settings.thinking, "Let the model think first");
  for (const auto& [name, range] : chat::setting_ranges()) {
    std::string flag = "--" + name;
    for (char& letter : flag) letter = letter == '_' ? '-' : letter;
    command->add_option_function<double>(flag, [flags, name](const double& value) { flags->settings.numbers[name] = value; },
                                         "Sampling: " + name)
        ->check(range.integer ? whole_number(static_cast<std::int64_t>(range.low), static_cast<std::int64_t>(range.high)) : number(range.low, range.high))
        ->group("Sampling");
  }
  command->callback([flags, &action] { action = [flags] { return talk(*flags); }; });
}

}  // namespace tandem::cli
