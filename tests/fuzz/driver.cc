// Runs a fuzz target on mutations of its seeds: the same inputs on every machine for the same --seed.
//
//   tokenizer_fuzz --runs 20000 --seconds 10 --seed 1     both bounds hold; what comes first ends it
//   tokenizer_fuzz --only 1234 --seed 1 > input           writes that run's input and runs nothing

#include "tests/fuzz/driver.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// In sanitizer builds: called before the process is ended for a report.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

std::uint64_t seed = 1;
volatile std::uint64_t run = 0;

void say_which() {
  char text[96];
  const int size = std::snprintf(text, sizeof text, "\nfuzz: broken by --seed %llu --only %llu\n",
                                 static_cast<unsigned long long>(seed), static_cast<unsigned long long>(run));
  if (size > 0 && write(2, text, static_cast<std::size_t>(size)) < 0) std::_Exit(3);
}

void on_signal(int number) {
  say_which();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// SplitMix64: the next of a sequence that begins anywhere.
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t end) { return end == 0 ? 0 : static_cast<std::size_t>(next() % end); }
};

// Bytes and words that break parsers.
constexpr std::string_view kPieces[] = {
    "\"", "\\", "{", "}", "[", "]", ":", ",", "\\u0000", "\\ud800", "null", "true", "-1", "0", "1e999", "1e-999",
    "9223372036854775808", "18446744073709551616", "-9223372036854775809", "0.1", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\xa7\x82",
    "\xed\xa0\x80", "<|im_start|>", "</think>", "{{", "}}", "{%", "%}", "\n", "\r\n", "\t", " ",
};

std::string mutated(const std::vector<std::string>& seeds, Random random) {
  std::string input = seeds[random.below(seeds.size())];
  for (std::size_t edits = 1 + random.below(6); edits > 0; --edits) {
    const std::size_t at = random.below(input.size() + 1);
    const std::size_t count = random.below(std::min<std::size_t>(input.size() - at, 24) + 1);
    switch (random.below(8)) {
      case 0: input.erase(at, count); break;
      case 1: input.insert(at, std::string(input, at, count)); break;
      case 2: input.resize(at); break;
      case 3: input.insert(at, kPieces[random.below(std::size(kPieces))]); break;
      case 4: input.replace(at, count, kPieces[random.below(std::size(kPieces))]); break;
      case 5:  // a part of another seed
        if (const std::string& other = seeds[random.below(seeds.size())]; !other.empty())
          input.insert(at, other, random.below(other.size()), 40);
        break;
      default:
        if (at < input.size()) input[at] = static_cast<char>(random.below(4) ? input[at] ^ (1 << random.below(8)) : random.next());
    }
  }
  return input;
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 20000, seconds = 10, only = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--runs") runs = number(argv[i + 1]);
    else if (flag == "--seconds") seconds = number(argv[i + 1]);
    else if (flag == "--seed") seed = number(argv[i + 1]);
    else if (flag == "--only") only = number(argv[i + 1]);
    else return std::fprintf(stderr, "fuzz: unknown flag %s\n", argv[i]), 2;
  }
  const std::vector<std::string> seeds = fuzz_seeds();
  const auto input_of = [&](std::uint64_t n) { return n <= seeds.size() ? seeds[n - 1] : mutated(seeds, {seed * 1000003 + n}); };
  if (only > 0) return std::fwrite(input_of(only).data(), 1, input_of(only).size(), stdout) == 0;

  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_signal);
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(say_which);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (run < runs && std::chrono::steady_clock::now() < end) {
    run = run + 1;
    const std::string input = input_of(run);
    // A copy that ends where the input ends, so that a sanitizer sees a read behind it.
    std::vector<std::uint8_t> bytes(input.begin(), input.end());
    bytes.shrink_to_fit();
    (void)LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("fuzz: %llu runs from %zu seeds, --seed %llu\n", static_cast<unsigned long long>(run), seeds.size(),
              static_cast<unsigned long long>(seed));
  return run == 0;
}
