// Bytes per second of a tokenizer on one thread. TANDEM_TOKENIZER names a folder with tokenizer.json;
// without it the small one of tokenizer_fixture.h is measured, which merges little.

#include "text/tokenizer.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <random>
#include <string>

#include "text/detokenizer.h"
#include "text/tokenizer_fixture.h"
#include "text/unicode_nfc.h"

namespace tandem::text {
namespace {

Result<Tokenizer> load() {
  if (const char* directory = std::getenv("TANDEM_TOKENIZER")) return Tokenizer::load(directory);
  return Tokenizer::parse(fixture::tokenizer_json(), fixture::tokenizer_config_json());
}

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = [] {
    auto loaded = load();
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      std::exit(1);
    }
    return std::move(*loaded);
  }();
  return kTokenizer;
}

// Words with the lengths and the repetition of prose; about one in ten is new.
std::string prose(std::size_t bytes, const char* letters) {
  std::mt19937 random(7);
  const std::string alphabet = letters;
  const auto word = [&] {
    std::string text;
    for (unsigned n = 1 + random() % 9; n > 0; --n) text += alphabet[random() % alphabet.size()];
    return text;
  };
  std::vector<std::string> known;
  for (int i = 0; i < 2000; ++i) known.push_back(word());
  std::string text;
  while (text.size() < bytes) {
    text += random() % 10 == 0 ? word() : known[random() % (1 + random() % known.size())];
    text += random() % 12 == 0 ? ".\n" : " ";
  }
  return text;
}

std::string repeated(std::size_t bytes, std::string_view unit) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

void encode(benchmark::State& state, const std::string& text) {
  std::size_t ids = 0;
  for (auto _ : state) {
    const auto encoded = tokenizer().encode(text, SpecialTokens::Parse);
    ids = encoded.size();
    benchmark::DoNotOptimize(encoded.data());
  }
  if (tokenizer().decode(tokenizer().encode(text, SpecialTokens::Parse), false) != to_nfc(text)) state.SkipWithError("decodes to another text");
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.counters["ids"] = static_cast<double>(ids);
}

void prose_4k(benchmark::State& state) { encode(state, prose(4 << 10, "eeeettaaooiinnsshrdlu")); }
void prose_1m(benchmark::State& state) { encode(state, prose(1 << 20, "eeeettaaooiinnsshrdlu")); }
// Doubling the length must not multiply the time by more than 2.5.
void one_letter(benchmark::State& state) { encode(state, repeated(static_cast<std::size_t>(state.range(0)), "a")); }
void no_spaces(benchmark::State& state) {
  std::mt19937 random(3);
  std::string text;
  while (text.size() < static_cast<std::size_t>(state.range(0))) text += static_cast<char>('a' + random() % 26);
  encode(state, text);
}
void white_space(benchmark::State& state) { encode(state, repeated(static_cast<std::size_t>(state.range(0)), " \n")); }
void decomposed(benchmark::State& state) { encode(state, repeated(1 << 20, "re\u0301sume\u0301 ")); }
void thai(benchmark::State& state) { encode(state, repeated(1 << 20, "ก็กำลังไปที่ตลาดน้ำกับเพื่อนๆ ")); }

void loading(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(load());
}

void detokenizing(benchmark::State& state) {
  const std::string text = prose(1 << 16, "eeeettaaooiinnsshrdlu");
  const auto ids = tokenizer().encode(text, SpecialTokens::Parse);
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer(), true);
    std::string shown;
    for (const TokenId id : ids) detokenizer.push(id, shown);
    benchmark::DoNotOptimize(shown.data());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * ids.size()));
}

BENCHMARK(loading)->Unit(benchmark::kMillisecond);
BENCHMARK(prose_4k)->Unit(benchmark::kMicrosecond);
BENCHMARK(prose_1m)->Unit(benchmark::kMillisecond);
BENCHMARK(one_letter)->RangeMultiplier(2)->Range(1 << 10, 1 << 15)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK(no_spaces)->RangeMultiplier(2)->Range(1 << 10, 1 << 15)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK(white_space)->Arg(1 << 15)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK(decomposed)->Unit(benchmark::kMillisecond);
BENCHMARK(thai)->Unit(benchmark::kMillisecond);
BENCHMARK(detokenizing);

}  // namespace
}  // namespace tandem::text

BENCHMARK_MAIN();
