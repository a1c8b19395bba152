#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/read_file.h"
#include "text/detokenizer.h"
#include "text/tokenizer_file.h"
#include "text/unicode_class.h"
#include "text/unicode_nfc.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  TANDEM_ASSIGN(std::string json, read_file(directory / "tokenizer.json"));
  auto config = read_file(directory / "tokenizer_config.json");
  if (!config && config.error().kind != ErrorKind::NotFound) return fail(std::move(config.error()));
  auto tokenizer = parse(std::move(json), config ? std::move(*config) : std::string());
  if (!tokenizer) {
    Error error = std::move(tokenizer.error());
    error.message = fmt::format("{}: {}", directory.string(), error.message);
    return fail(std::move(error));
  }
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string tokenizer_json, std::string tokenizer_config_json) {
  Tokenizer tokenizer;
  TANDEM_TRY(tokenizer.read_tokenizer_json(std::move(tokenizer_json)));
  if (!tokenizer_config_json.empty()) TANDEM_TRY(tokenizer.read_tokenizer_config_json(std::move(tokenizer_config_json)));
  TANDEM_TRY(tokenizer.finish());
  (void)unicode_table();  // built now, not by the first request
  return tokenizer;
}

Result<void> Tokenizer::read_tokenizer_json(std::string json) {
  TANDEM_ASSIGN(TokenizerFile file, read_tokenizer_file(std::move(json)));
  bpe_ = std::move(file.bpe);
  split_rule_ = file.split_rule;
  for (AddedToken& token : file.added_tokens) TANDEM_TRY(added_.add(std::move(token)));
  return {};
}

Result<void> Tokenizer::read_tokenizer_config_json(std::string json) {
  TANDEM_ASSIGN(TokenizerConfigFile file, read_tokenizer_config_file(std::move(json)));
  for (AddedToken& token : file.added_tokens) TANDEM_TRY(added_.add(std::move(token)));
  const auto id_of = [&](std::string_view field, const std::optional<std::string>& name) -> Result<std::optional<TokenId>> {
    if (!name) return std::nullopt;
    if (const auto id = find(*name)) return id;
    return fail(ErrorKind::Corrupt, fmt::format("[tokenizer_config.json] {} = '{}' is not a token of the vocabulary", field, *name),
                std::string(field));
  };
  TANDEM_ASSIGN(eos_, id_of("eos_token", file.eos_token));
  TANDEM_ASSIGN(pad_, id_of("pad_token", file.pad_token));
  TANDEM_ASSIGN(bos_, id_of("bos_token", file.bos_token));
  return {};
}

// An added token may also stand in the vocabulary, then under the same id.
Result<void> Tokenizer::finish() {
  kinds_.assign(static_cast<std::size_t>(std::max(bpe_.end_id(), added_.end_id())), Kind::None);
  for (TokenId id = 0; id < bpe_.end_id(); ++id) {
    if (!bpe_.bytes(id).empty()) kinds_[static_cast<std::size_t>(id)] = Kind::Text;
  }
  for (const AddedToken& token : added_.all()) {
    const TokenId same_bytes = bpe_.find(token.content);
    if ((same_bytes >= 0 && same_bytes != token.id) || (!bpe_.bytes(token.id).empty() && bpe_.bytes(token.id) != token.content)) {
      return fail(ErrorKind::Corrupt, fmt::format("the added token '{}' has the id {}, but the vocabulary has '{}' there{}", token.content,
                                                  token.id, to_utf8(bpe_.bytes(token.id)),
                                                  same_bytes >= 0 ? fmt::format(" and this text at {}", same_bytes) : ""));
    }
    kinds_[static_cast<std::size_t>(token.id)] = token.special ? Kind::Special : Kind::Added;
  }
  return {};
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens special_tokens) const {
  std::string replaced;
  if (!is_utf8(text)) {
    replaced = to_utf8(text);
    text = replaced;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  std::size_t done = 0;
  std::size_t from = 0;
  while (true) {
    const AddedTokens::Match match = added_.find_in(text, from);
    if (match.token == nullptr) break;
    from = match.begin + match.token->content.size();
    if (match.token->special && special_tokens == SpecialTokens::AsText) continue;
    encode_segment(text.substr(done, match.begin - done), ids);
    ids.push_back(match.token->id);
    done = from;
  }
  encode_segment(text.substr(done), ids);
  return ids;
}

void Tokenizer::encode_segment(std::string_view utf8, std::vector<TokenId>& ids) const {
  std::string normalized;
  if (!is_ascii(utf8) && !is_nfc(utf8)) {
    normalized = to_nfc(utf8);
    utf8 = normalized;
  }
  Splitter splitter(split_rule_, utf8);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) bpe_.append(piece, ids);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) detokenizer.push(id, text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  switch (kind(id)) {
    case Kind::None: return {};
    case Kind::Text: return bpe_.bytes(id);
    case Kind::Added:
    case Kind::Special: break;
  }
  return added_.find(id)->content;
}

std::optional<TokenId> Tokenizer::find(std::string_view bytes) const {
  if (const AddedToken* token = added_.find(bytes)) return token->id;
  const TokenId id = bpe_.find(bytes);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

}  // namespace tandem::text
