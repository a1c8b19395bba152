#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::text {

// UTF-8, by the rule of the Unicode standard (3.9, "maximal subpart"): what is not UTF-8 becomes one
// U+FFFD for each longest run of bytes that could have begun a character. Every function here is
// linear and may be called on any thread.

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What the first bytes of a text are.
struct Utf8Step {
  enum class Kind { Character, Unfinished, Invalid } kind;
  std::size_t bytes;  // >= 1: the character, all that is left of the text, or the bytes to replace
  char32_t code_point;  // only for Character
};

// Reads at the start of `text`, which is not empty.
[[nodiscard]] Utf8Step utf8_step(std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

// `bytes` with everything replaced that is not UTF-8, an unfinished end included.
[[nodiscard]] std::string to_utf8(std::string_view bytes);

void append_utf8(char32_t code_point, std::string& out);

// Reads one character of a text known to be UTF-8 and moves `at` past it.
inline char32_t next_code_point(const char*& at) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    at += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    at += 3;
    return c;
  }
  const char32_t c = (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
  at += 4;
  return c;
}

// Bytes in, text out, in pieces of any size: the joined outputs do not depend on where the pieces
// end. A character comes out with its last byte; bytes that can no longer become one come out as
// U+FFFD at once. At most three bytes are ever held.
//
// Thread: one at a time.
class Utf8Stream {
 public:
  // Bytes that came before the stream and are not part of its output: the first piece may finish
  // their character, which then comes out whole; if it does not, they leave no trace.
  void begin_after(std::string_view bytes);

  void push(std::string_view bytes, std::string& out);

  // Bytes of a character that has not ended; at most three.
  [[nodiscard]] std::string_view held() const { return held_; }

  // Forgets the unfinished character, if any.
  void drop_held();

 private:
  std::string held_;
  std::size_t foreign_ = 0;  // how many bytes at the start of held_ came before the stream
};

}  // namespace tandem::text
