#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tandem::text {

// What the split rules and the normalizer ask about a code point, in one byte: the three low bits
// are a CharClass, two more speak of NFC.
enum class CharClass : std::uint8_t {
  Other,    // none of the others: punctuation, symbols, controls, unassigned
  Letter,   // \p{L}
  Mark,     // \p{M}
  Number,   // \p{N}
  Newline,  // CR and LF, which are white space too
  Space,    // \s without CR and LF
};

// Properties of all code points. Two stages: a page number for each 256 code points, then the page.
//
// Thread: any; built once, at the first call of `unicode_table` (about 2 ms), never changed.
//
// The classes are those of Unicode 16 (utf8proc 2.8 knows 15.0, the rest is in unicode_class.cc):
// the version that the split patterns of the reference tokenizer run on.
class UnicodeTable {
 public:
  UnicodeTable();

  [[nodiscard]] CharClass char_class(char32_t c) const { return static_cast<CharClass>(bits(c) & 7); }

  // False for a text's code point means: it does not change under NFC whatever stands before it.
  [[nodiscard]] bool may_change_under_nfc(char32_t c) const { return (bits(c) & kMayChange) != 0; }
  [[nodiscard]] bool is_reordered(char32_t c) const { return (bits(c) & kReordered) != 0; }  // combining class above 0
  [[nodiscard]] bool is_inert(char32_t c) const { return (bits(c) & (kMayChange | kReordered)) == 0; }

 private:
  static constexpr std::uint8_t kMayChange = 8;
  static constexpr std::uint8_t kReordered = 16;

  [[nodiscard]] std::uint8_t bits(char32_t c) const { return pages_[page_of_[c >> 8]][c & 255]; }

  std::array<std::uint16_t, 0x1100> page_of_{};
  std::vector<std::array<std::uint8_t, 256>> pages_;
};

[[nodiscard]] const UnicodeTable& unicode_table();

}  // namespace tandem::text
