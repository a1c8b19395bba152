#include "text/detokenizer.h"

namespace tandem::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

void Detokenizer::begin_after(std::span<const TokenId> prompt) {
  // Four bytes from the end there is the beginning of a character, or there are only bytes that end
  // none; either way nothing before them matters.
  std::size_t first = prompt.size();
  for (std::size_t bytes = 0; first > 0 && bytes < 4; bytes += bytes_of(prompt[first]).size()) --first;
  std::string tail;
  for (const TokenId id : prompt.subspan(first)) tail += bytes_of(id);
  stream_.begin_after(tail);
}

void Detokenizer::push(TokenId id, std::string& text) { stream_.push(bytes_of(id), text); }

std::string Detokenizer::push(TokenId id) {
  std::string text;
  push(id, text);
  return text;
}

std::string_view Detokenizer::bytes_of(TokenId id) const {
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return {};
  return tokenizer_.token_bytes(id);
}

}  // namespace tandem::text
