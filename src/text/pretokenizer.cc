#include "text/pretokenizer.h"

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

// The alternatives, tried in this order at each place:
//   1 contraction   's 't 're 've 'm 'll 'd, any case
//   2 word          one character that is no letter, number or line break, if letters follow; letters
//   3 number        one digit
//   4 punctuation   one space, if punctuation follows; punctuation; line breaks
//   5 line breaks   white space up to its last line break
//   6 white space   without its last character if something follows
//   7 white space
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen3_5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Kind { Letter, Number, Punctuation, Newline, Space };

struct Scanner {
  const UnicodeTable& table = unicode_table();
  bool marks_are_letters;
  const char* end;

  Kind kind(CharClass c) const {
    switch (c) {
      case CharClass::Letter: return Kind::Letter;
      case CharClass::Mark: return marks_are_letters ? Kind::Letter : Kind::Punctuation;
      case CharClass::Number: return Kind::Number;
      case CharClass::Newline: return Kind::Newline;
      case CharClass::Space: return Kind::Space;
      case CharClass::Other: break;
    }
    return Kind::Punctuation;
  }

  // The kind of the character at `at`, which is not the end; moves `at` past it.
  Kind read(const char*& at) const { return kind(table.char_class(next_code_point(at))); }

  const char* skip(const char* at, Kind wanted) const {
    while (at != end) {
      const char* next = at;
      if (read(next) != wanted) break;
      at = next;
    }
    return at;
  }

  bool stands_at(const char* at, Kind wanted) const { return at != end && read(at) == wanted; }

  // After the apostrophe at `at`: the end of the contraction, or nullptr. U+017F is a lower-case s
  // to a pattern that ignores case.
  const char* contraction(const char* at) const {
    const auto left = end - at;
    const auto lower = [&](int i) { return static_cast<char>(at[i] | 0x20); };
    if (left < 2) return nullptr;
    switch (lower(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return at + 2;
      case 'r':
      case 'v': return left >= 3 && lower(2) == 'e' ? at + 3 : nullptr;
      case 'l': return left >= 3 && lower(2) == 'l' ? at + 3 : nullptr;
      default: break;
    }
    return left >= 3 && at[1] == '\xC5' && at[2] == '\xBF' ? at + 3 : nullptr;
  }

  const char* white_space(const char* begin) const {
    const char* after_newline = nullptr;
    const char* last = begin;
    const char* at = begin;
    while (at != end) {
      const char* next = at;
      const Kind here = read(next);
      if (here != Kind::Space && here != Kind::Newline) break;
      if (here == Kind::Newline) after_newline = next;
      last = at;
      at = next;
    }
    if (after_newline != nullptr) return after_newline;
    return at == end || last == begin ? at : last;
  }

  const char* piece_end(const char* begin) const {
    if (*begin == '\'') {
      if (const char* after = contraction(begin)) return after;
    }
    const char* at = begin;
    switch (read(at)) {
      case Kind::Letter: return skip(at, Kind::Letter);
      case Kind::Number: return at;
      case Kind::Punctuation:
        if (stands_at(at, Kind::Letter)) return skip(at, Kind::Letter);
        return skip(skip(at, Kind::Punctuation), Kind::Newline);
      case Kind::Space:
        if (stands_at(at, Kind::Letter)) return skip(at, Kind::Letter);
        if (*begin == ' ' && stands_at(at, Kind::Punctuation)) return skip(skip(at, Kind::Punctuation), Kind::Newline);
        return white_space(begin);
      case Kind::Newline: return white_space(begin);
    }
    return at;
  }
};

}  // namespace

std::optional<SplitRule> split_rule_of(std::string_view pattern) {
  if (pattern == kQwen2) return SplitRule::Qwen2;
  if (pattern == kQwen3_5) return SplitRule::Qwen3_5;
  return std::nullopt;
}

std::string_view pattern_of(SplitRule rule) { return rule == SplitRule::Qwen2 ? kQwen2 : kQwen3_5; }

Splitter::Splitter(SplitRule rule, std::string_view utf8)
    : marks_are_letters_(rule == SplitRule::Qwen3_5), at_(utf8.data()), end_(utf8.data() + utf8.size()) {}

std::string_view Splitter::next() {
  const char* const begin = at_;
  if (begin == end_) return {};
  at_ = Scanner{.marks_are_letters = marks_are_letters_, .end = end_}.piece_end(begin);
  return {begin, static_cast<std::size_t>(at_ - begin)};
}

}  // namespace tandem::text
