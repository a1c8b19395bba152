// Case mappings of whole strings. utf8proc maps one code point to one; the mappings to more than one
// stand in special_case.inc.

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

struct SpecialCase {
  char32_t c;
  std::string_view upper;
  std::string_view title;
};

constexpr SpecialCase kSpecial[] = {
#include "text/jinja/special_case.inc"
};

const SpecialCase* special(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kSpecial), std::end(kSpecial), c,
                                       [](const SpecialCase& s, char32_t v) { return s.c < v; });
  return found != std::end(kSpecial) && found->c == c ? found : nullptr;
}

char32_t simple_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const auto* s = special(c)) {
    out += s->upper;
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else if (const auto* s = special(c)) {
    out += s->title;
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_case_ignorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xa8 || c == 0xad || c == 0xb7 ||
      c == 0x2019) {
    return true;
  }
  const auto k = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

// A capital sigma at byte `at` (2 bytes) ends a word: a cased letter before it, none after it.
bool is_final_sigma(std::string_view text, std::size_t at) {
  bool before = false;
  for (std::size_t i = at; i > 0;) {
    do --i;
    while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80);
    std::size_t behind = i;
    const char32_t c = next_code_point(text, behind);
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (std::size_t i = at + 2; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, std::size_t at, char32_t c) {
  if (c == 0x130) {
    out += "i\xcc\x87";
  } else if (c == 0x3a3) {
    append_code_point(out, is_final_sigma(text, at) ? 0x3c2 : 0x3c3);
  } else {
    append_code_point(out, simple_lower(c));
  }
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    append_lower(out, text, start, next_code_point(text, at));
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (start == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, start, c);
    }
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (in_word) {
      append_lower(out, text, start, c);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (is_upper(c)) {
      append_lower(out, text, start, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_code_point(out, c);
    }
  }
  return out;
}

}  // namespace tandem::text::jinja
