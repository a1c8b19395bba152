#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace tandem::text {

// Tokens to text, one at a time. A character comes out with its last byte, and nothing else waits;
// bytes that can no longer become a character come out as U+FFFD at once (text/utf8.h). The joined
// pieces are Tokenizer::decode of all ids: bytes of a character that the last token leaves
// unfinished are in neither. No space is ever added or removed.
//
// Thread: one at a time. The tokenizer must outlive it.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  // A prompt that the tokens continue. Its text is not given out again; only a character that it
  // leaves unfinished comes out, whole, if the first tokens finish it. Before the first push.
  void begin_after(std::span<const TokenId> prompt);

  // Appends what became complete. Ids without a token, and skipped ones, are nothing.
  void push(TokenId id, std::string& text);
  [[nodiscard]] std::string push(TokenId id);

  // Bytes of an unfinished character, at most three.
  [[nodiscard]] std::string_view held() const { return stream_.held(); }

 private:
  [[nodiscard]] std::string_view bytes_of(TokenId id) const;

  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  Utf8Stream stream_;
};

}  // namespace tandem::text
