// Python's string escapes, as Jinja applies them: the text is first made ASCII (a character beyond it
// becomes an escape itself), then unescaped. So a backslash before a character beyond ASCII leaves that
// character's escape as plain text.

#include "text/jinja/lexer.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

[[noreturn]] void fail(std::string message) { throw Failure{Failure::Kind::Syntax, std::move(message)}; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

char32_t hex_number(std::string_view inside, std::size_t& at, std::size_t digits) {
  char32_t c = 0;
  for (std::size_t i = 0; i < digits; ++i, ++at) {
    const int digit = at < inside.size() ? hex_digit(inside[at]) : -1;
    if (digit < 0) fail("the string has a \\x, \\u or \\U escape with too few hexadecimal digits");
    c = c << 4 | static_cast<char32_t>(digit);
  }
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
    fail("the string escapes a code point that is no character");
  return c;
}

void append_plain_escape(std::string& out, char32_t c) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += '\\';
  out += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int i = digits - 1; i >= 0; --i) out += kHex[c >> (4 * i) & 15];
}

}  // namespace

std::string unescape(std::string_view inside) {
  std::string out;
  out.reserve(inside.size());
  for (std::size_t at = 0; at < inside.size();) {
    if (inside[at] != '\\' || at + 1 >= inside.size()) {
      out += inside[at++];
      continue;
    }
    const char c = inside[++at];
    if (static_cast<unsigned char>(c) >= 0x80) {
      append_plain_escape(out, next_code_point(inside, at));
      continue;
    }
    ++at;
    switch (c) {
      case '\n':
        break;
      case '\\':
      case '\'':
      case '"':
        out += c;
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'v':
        out += '\v';
        break;
      case 'x':
        append_code_point(out, hex_number(inside, at, 2));
        break;
      case 'u':
        append_code_point(out, hex_number(inside, at, 4));
        break;
      case 'U':
        append_code_point(out, hex_number(inside, at, 8));
        break;
      case 'N':
        fail("the string names a character with \\N{...}; write the character itself");
      default:
        if (c >= '0' && c <= '7') {
          char32_t code = static_cast<char32_t>(c - '0');
          for (int i = 0; i < 2 && at < inside.size() && inside[at] >= '0' && inside[at] <= '7'; ++i, ++at)
            code = code * 8 + static_cast<char32_t>(inside[at] - '0');
          append_code_point(out, code);
        } else {
          out += '\\';
          out += c;
        }
    }
  }
  return out;
}

}  // namespace tandem::text::jinja
