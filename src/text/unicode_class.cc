#include "text/unicode_class.h"

#include <utf8proc.h>

#include <map>

#include "text/unicode_nfc.h"

namespace tandem::text {
namespace {

struct Range {
  char32_t first, last;
};

// Assigned by Unicode 15.1 and 16.0.
constexpr Range kYoungLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
    {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E},
    {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0},
    {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
constexpr Range kYoungMarks[] = {
    {0x0897, 0x0897},   {0x10D69, 0x10D6D}, {0x10EFC, 0x10EFC}, {0x113B8, 0x113C0}, {0x113C2, 0x113C2},
    {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2}, {0x113E1, 0x113E2},
    {0x11F5A, 0x11F5A}, {0x1611E, 0x1612F}, {0x1E5EE, 0x1E5EF},
};
constexpr Range kYoungNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};

template <std::size_t N>
bool contains(const Range (&ranges)[N], char32_t c) {
  for (const Range& range : ranges) {
    if (range.first <= c && c <= range.last) return true;
  }
  return false;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass classify(char32_t c) {
  if (c == '\r' || c == '\n') return CharClass::Newline;
  if (is_white_space(c)) return CharClass::Space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::Letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CharClass::Mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::Number;
    case UTF8PROC_CATEGORY_CN:
      if (contains(kYoungLetters, c)) return CharClass::Letter;
      if (contains(kYoungMarks, c)) return CharClass::Mark;
      if (contains(kYoungNumbers, c)) return CharClass::Number;
      return CharClass::Other;
    default: return CharClass::Other;
  }
}

// Planes 4 to 13 are unassigned and 15 and 16 are for private use: Other, inert.
constexpr bool is_empty_plane(char32_t plane) { return plane >= 4 && plane != 14; }

}  // namespace

UnicodeTable::UnicodeTable() {
  std::map<std::array<std::uint8_t, 256>, std::uint16_t> known;
  for (char32_t page = 0; page < page_of_.size(); ++page) {
    std::array<std::uint8_t, 256> bytes{};
    for (char32_t i = 0; i < 256 && !is_empty_plane(page >> 8); ++i) {
      const char32_t c = page << 8 | i;
      bytes[i] = static_cast<std::uint8_t>(classify(c));
      if (nfc::may_change(c)) bytes[i] |= kMayChange;
      if (nfc::combining_class(c) != 0) bytes[i] |= kReordered;
    }
    const auto [entry, is_new] = known.emplace(bytes, static_cast<std::uint16_t>(pages_.size()));
    if (is_new) pages_.push_back(bytes);
    page_of_[page] = entry->second;
  }
}

const UnicodeTable& unicode_table() {
  static const UnicodeTable table;
  return table;
}

}  // namespace tandem::text
