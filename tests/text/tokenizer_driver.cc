// For tokenizer_diff.py: answers JSON lines from standard input (text/tokenizer_lines.h) as
// `tandem tokenize --lines` does, and tells how long tokenizing alone takes.
//
//   tokenizer_driver DIR            answers lines
//   tokenizer_driver DIR --time N   tokenizes the input, texts that end with a zero byte, N times;
//                                   prints seconds and ids for each

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_lines.h"

int main(int argc, char** argv) {
  using namespace tandem::text;
  if (argc != 2 && argc != 4) {
    std::cerr << "usage: tokenizer_driver DIR [--time N]\n";
    return 2;
  }
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << '\n';
    return 1;
  }
  std::ios::sync_with_stdio(false);
  if (argc == 4) {
    std::vector<std::string> texts;
    for (std::string text; std::getline(std::cin, text, '\0');) texts.push_back(text);
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
      std::size_t ids = 0;
      const auto begin = std::chrono::steady_clock::now();
      for (const std::string& text : texts) ids += tokenizer->encode(text, SpecialTokens::Parse).size();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::cout << seconds.count() << ' ' << ids << '\n';
    }
    return 0;
  }
  if (const auto done = tokenize_lines(*tokenizer, std::cin, std::cout); !done) {
    std::cerr << done.error().message << '\n';
    return 1;
  }
  return 0;
}
