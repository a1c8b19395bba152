// Time from the body of a chat request with 4,096 tokens to its token ids, on one thread: JSON, fields, template,
// tokenizer, together and apart. TANDEM_MODEL names the folder of the chat template (models/tandem-tiny),
// TANDEM_TOKENIZER another one for tokenizer.json.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "server/chat_request.h"
#include "server/http_message.h"
#include "server/testing/long_chat.h"
#include "server/text_tools.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::server {
namespace {

constexpr std::size_t kTokens = 4096;

template <class Value, class Error>
Value value_of(tl::expected<Value, Error> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}

struct Setup {
  ModelCard card{.names = {"m"}};
  TextTools text;
  Served served{.card = card, .vocab = 250000, .max_context = 32768, .max_choices = 1};
  std::string body, prompt;
  std::size_t tokens = 0;

  Setup()
      : text([] {
          const char* model = std::getenv("TANDEM_MODEL");
          const std::string folder = model != nullptr ? model : "models/tandem-tiny";
          const char* tokenizer = std::getenv("TANDEM_TOKENIZER");
          return TextTools(value_of(text::Tokenizer::load(tokenizer != nullptr ? tokenizer : folder)),
                           value_of(text::ChatTemplate::load(folder)));
        }()) {
    for (std::size_t bytes = 4096; tokens < kTokens; bytes += 256) {
      body = testing::long_chat(bytes);
      prompt = rendered(chat());
      tokens = text.encode(prompt).size();
    }
  }
  [[nodiscard]] ChatRequest chat() const { return value_of(read_chat_request(value_of(parse_object(body)), served, text)); }
  [[nodiscard]] std::string rendered(const ChatRequest& chat) const { return value_of(render_prompt(text, chat.conversation)).text; }
};

const Setup& setup() {
  static const Setup kSetup;
  return kSetup;
}

void count(benchmark::State& state) {
  state.counters["tokens"] = static_cast<double>(setup().tokens);
  state.counters["body_bytes"] = static_cast<double>(setup().body.size());
}

void request_4k(benchmark::State& state) {
  const Setup& s = setup();
  for (auto _ : state) {
    const auto ids = s.text.encode(s.rendered(s.chat()));
    benchmark::DoNotOptimize(ids.data());
  }
  count(state);
}
void parse_and_fields(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(setup().chat().conversation.messages.size());
  count(state);
}
void render(benchmark::State& state) {
  const ChatRequest chat = setup().chat();
  for (auto _ : state) benchmark::DoNotOptimize(setup().rendered(chat).size());
  count(state);
}
void tokenize(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(setup().text.encode(setup().prompt).size());
  count(state);
}

BENCHMARK(request_4k)->Unit(benchmark::kMicrosecond);
BENCHMARK(parse_and_fields)->Unit(benchmark::kMicrosecond);
BENCHMARK(render)->Unit(benchmark::kMicrosecond);
BENCHMARK(tokenize)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tandem::server

BENCHMARK_MAIN();
