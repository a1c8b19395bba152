#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

namespace tandem::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

bool is_valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t c = 0;
    const auto taken = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                        static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (taken <= 0) return false;
    at += static_cast<std::size_t>(taken);
  }
  return true;
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (char c : text) all = static_cast<unsigned char>(all | static_cast<unsigned char>(c));
  return all < 0x80;
}

std::size_t length(std::string_view text) {
  std::size_t count = 0;
  for (char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (at < text.size()) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) {
      if (index == 0) return at;
      --index;
    }
    ++at;
  }
  return text.size();
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[i])) : char32_t{0};
  };
  const char32_t b = byte(at);
  char32_t c = b;
  std::size_t taken = 1;
  if (b >= 0xf0) {
    c = (b & 7) << 18 | (byte(at + 1) & 63) << 12 | (byte(at + 2) & 63) << 6 | (byte(at + 3) & 63);
    taken = 4;
  } else if (b >= 0xe0) {
    c = (b & 15) << 12 | (byte(at + 1) & 63) << 6 | (byte(at + 2) & 63);
    taken = 3;
  } else if (b >= 0xc0) {
    c = (b & 31) << 6 | (byte(at + 1) & 63);
    taken = 2;
  }
  at = std::min(at + taken, text.size());
  return c;
}

void append_code_point(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  // Beyond the decimals: superscripts, subscripts and the circled digits.
  return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247c) || (c >= 0x2488 && c <= 0x2490);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return is_decimal(c);
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) && category(c) != UTF8PROC_CATEGORY_LT;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c));
}

bool is_title(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_identifier_start(char32_t c) {
  return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(char32_t c) {
  if (is_identifier_start(c) || is_decimal(c)) return true;
  const auto k = category(c);
  return c >= 0x80 && (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC);
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  if (left) {
    std::size_t at = 0;
    while (at < text.size()) {
      std::size_t next = at;
      if (!is_space(next_code_point(text, next))) break;
      at = next;
    }
    text.remove_prefix(at);
  }
  if (right) {
    while (!text.empty()) {
      std::size_t start = text.size() - 1;
      while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
      std::size_t at = start;
      if (!is_space(next_code_point(text, at))) break;
      text.remove_suffix(text.size() - start);
    }
  }
  return text;
}

std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right) {
  std::u32string set;
  for (std::size_t at = 0; at < chars.size();) set += next_code_point(chars, at);
  std::sort(set.begin(), set.end());
  const auto in_set = [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); };
  if (left) {
    std::size_t at = 0;
    while (at < text.size()) {
      std::size_t next = at;
      if (!in_set(next_code_point(text, next))) break;
      at = next;
    }
    text.remove_prefix(at);
  }
  if (right) {
    while (!text.empty()) {
      std::size_t start = text.size() - 1;
      while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
      std::size_t at = start;
      if (!in_set(next_code_point(text, at))) break;
      text.remove_suffix(text.size() - start);
    }
  }
  return text;
}

}  // namespace tandem::text::jinja
