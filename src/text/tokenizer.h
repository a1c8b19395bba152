#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"

namespace tandem::text {

// What a special token's spelling in a text means. Added tokens that are not special (<think>,
// <tool_call>) are tokens either way.
enum class SpecialTokens {
  Parse,   // the token: for text that a chat template wrote
  AsText,  // the characters it is spelled with
};

// Text to tokens and back, as the files of a checkpoint say: byte-level BPE, NFC, one of the split
// rules of pretokenizer.h, added tokens. Anything else in the files is refused by name.
//
// Immutable once loaded: any thread may call everything, at once. Views that it returns live as long
// as it is not moved or destroyed. Times are n log n in the bytes at worst, on any input.
class Tokenizer {
 public:
  // Reads tokenizer.json and, if there is one, tokenizer_config.json, which may add tokens and names
  // the end-of-text token. Errors: NotFound and Io with the path; Invalid (not JSON, a field of the
  // wrong type); Corrupt (ids or tokens that contradict each other); Unsupported, with the field,
  // its value and what is supported.
  [[nodiscard]] static Result<Tokenizer> load(const std::filesystem::path& directory);

  // The same from the files' contents; an empty `tokenizer_config_json` is a missing file.
  [[nodiscard]] static Result<Tokenizer> parse(std::string tokenizer_json, std::string tokenizer_config_json);

  // No token is put before or after. Bytes that are not UTF-8 count as U+FFFD (text/utf8.h). A text
  // may be cut into the segments of a prompt only where no token can span the cut.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text, SpecialTokens special_tokens) const;

  // What a Detokenizer gives for these ids: UTF-8, without a character left unfinished at the end.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // The bytes a token stands for, perhaps part of a character; empty for an id without a token.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;
  [[nodiscard]] bool has_token(TokenId id) const { return kind(id) != Kind::None; }
  [[nodiscard]] bool is_special(TokenId id) const { return kind(id) == Kind::Special; }

  // The token that stands for exactly these bytes.
  [[nodiscard]] std::optional<TokenId> find(std::string_view bytes) const;

  // One past the greatest id; a model may have more rows than that.
  [[nodiscard]] std::int32_t vocab_size() const { return static_cast<std::int32_t>(kinds_.size()); }

  // As tokenizer_config.json names them.
  [[nodiscard]] std::optional<TokenId> eos() const { return eos_; }
  [[nodiscard]] std::optional<TokenId> pad() const { return pad_; }
  [[nodiscard]] std::optional<TokenId> bos() const { return bos_; }

  [[nodiscard]] const std::vector<AddedToken>& added_tokens() const { return added_.all(); }  // by id
  [[nodiscard]] SplitRule split_rule() const { return split_rule_; }

 private:
  enum class Kind : std::uint8_t { None, Text, Added, Special };

  Tokenizer() = default;
  [[nodiscard]] Result<void> read_tokenizer_json(std::string json);
  [[nodiscard]] Result<void> read_tokenizer_config_json(std::string json);
  [[nodiscard]] Result<void> finish();
  [[nodiscard]] Kind kind(TokenId id) const {
    return id >= 0 && id < vocab_size() ? kinds_[static_cast<std::size_t>(id)] : Kind::None;
  }
  void encode_segment(std::string_view utf8, std::vector<TokenId>& ids) const;

  Bpe bpe_;
  AddedTokens added_;
  SplitRule split_rule_ = SplitRule::Qwen3_5;
  std::vector<Kind> kinds_;  // [vocab_size]
  std::optional<TokenId> eos_, pad_, bos_;
};

}  // namespace tandem::text
