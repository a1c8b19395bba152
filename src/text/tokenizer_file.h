#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"

namespace tandem::text {

// The parser reads this far past the end of a text: a string with that much spare capacity is not
// copied.
inline constexpr std::size_t kJsonPadding = 64;

// What tokenizer.json says, once everything that is not supported has been refused.
struct TokenizerFile {
  Bpe bpe;
  std::vector<AddedToken> added_tokens;
  SplitRule split_rule = SplitRule::Qwen3_5;
};
[[nodiscard]] Result<TokenizerFile> read_tokenizer_file(std::string json);

// What tokenizer_config.json says about tokens; the rest of it is for others.
struct TokenizerConfigFile {
  std::vector<AddedToken> added_tokens;
  std::optional<std::string> eos_token, pad_token, bos_token;
};
[[nodiscard]] Result<TokenizerConfigFile> read_tokenizer_config_file(std::string json);

}  // namespace tandem::text
