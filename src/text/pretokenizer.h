#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem::text {

// Cutting a text into the pieces that byte pairs are merged within. The rule is a regular
// expression in tokenizer.json; the two of the Qwen family are known here as scanners, which need
// neither a regex engine nor recursion, and look at each character at most three times.
enum class SplitRule {
  Qwen2,    // Qwen2, Qwen2.5, Qwen3: a combining mark is punctuation
  Qwen3_5,  // Qwen3.5: a combining mark is part of a word
};

// The rule whose pattern this is, exactly.
[[nodiscard]] std::optional<SplitRule> split_rule_of(std::string_view pattern);
[[nodiscard]] std::string_view pattern_of(SplitRule rule);

// Walks over the pieces of a text; together they are the text.
//
// Thread: one at a time. `utf8` must be UTF-8 and outlive the splitter.
class Splitter {
 public:
  Splitter(SplitRule rule, std::string_view utf8);

  // The next piece, not empty; empty at the end.
  [[nodiscard]] std::string_view next();

 private:
  const bool marks_are_letters_;
  const char* at_;
  const char* const end_;
};

}  // namespace tandem::text
