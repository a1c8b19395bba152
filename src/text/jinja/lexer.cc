#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/number.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::size_t kMaxSourceBytes = std::size_t{4} << 20;

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// Longest first.
constexpr std::string_view kSymbols[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

std::string one_newline(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace

Lexer::Lexer(std::string_view source) : source_(one_newline(source)) {
  line_starts_.push_back(0);
  for (std::size_t i = 0; i < source_.size(); ++i)
    if (source_[i] == '\n') line_starts_.push_back(i + 1);
}

Position Lexer::position(std::size_t offset) const {
  const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) - line_starts_.begin();
  const std::size_t start = line_starts_[static_cast<std::size_t>(line - 1)];
  const std::size_t column = length(std::string_view(source_).substr(start, offset - start)) + 1;
  return {static_cast<std::uint32_t>(line), static_cast<std::uint32_t>(column)};
}

void Lexer::fail(std::string message, std::size_t offset) const {
  throw Failure{Failure::Kind::Syntax, std::move(message), position(std::min(offset, source_.size()))};
}

std::vector<Token> Lexer::tokens() {
  if (source_.size() > kMaxSourceBytes) fail("the template is longer than 4 MiB", 0);
  if (!is_valid_utf8(source_)) fail("the template is not UTF-8", 0);
  while (at_ < source_.size()) text_and_tag();
  add(TokenKind::End, source_.size());
  return std::move(tokens_);
}

void Lexer::add(TokenKind kind, std::size_t offset, std::string text, Value value) {
  tokens_.push_back(Token{kind, offset, std::move(text), std::move(value)});
}

std::size_t Lexer::skip_space(std::size_t at) const {
  while (at < source_.size()) {
    std::size_t next = at;
    if (!is_space(next_code_point(source_, next))) break;
    at = next;
  }
  return at;
}

// Where a tag that ends at `at` with `closing` (perhaps after a sign) ends, with the white space that
// goes with it; kNone if it does not end here.
std::size_t Lexer::end_of_tag(std::size_t at, std::string_view closing, bool trims_newline) const {
  if (starts("-", at) && starts(closing, at + 1)) return skip_space(at + 1 + closing.size());
  if (trims_newline && starts("+", at) && starts(closing, at + 1)) return at + 1 + closing.size();
  if (!starts(closing, at)) return kNone;
  at += closing.size();
  return trims_newline && starts("\n", at) ? at + 1 : at;
}

// Adds the text before a tag. `sign` is the tag's; `may_strip_line` is false before {{.
void Lexer::data(std::string_view text, char sign, bool may_strip_line, std::size_t offset) {
  if (sign == '-') {
    text = strip_space(text, false, true);
  } else if (sign != '+' && may_strip_line) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == kNone ? 0 : newline + 1;
    if ((line > 0 || line_starting_) && strip_space(text.substr(line), true, false).empty())
      text = text.substr(0, line);
  }
  if (!text.empty()) add(TokenKind::Data, offset, std::string(text));
}

void Lexer::text_and_tag() {
  const std::string_view rest = std::string_view(source_).substr(at_);
  std::size_t tag_at = 0;
  while (true) {
    tag_at = rest.find('{', tag_at);
    if (tag_at == kNone || tag_at + 1 >= rest.size()) {
      add(TokenKind::Data, at_, std::string(rest));
      at_ = source_.size();
      return;
    }
    const char c = rest[tag_at + 1];
    if (c == '%' || c == '{' || c == '#') break;
    ++tag_at;
  }
  const char type = rest[tag_at + 1];
  std::size_t after = tag_at + 2;
  char sign = 0;
  if (after < rest.size() && (rest[after] == '-' || rest[after] == '+')) sign = rest[after++];
  data(rest.substr(0, tag_at), sign, type != '{', at_);
  const std::size_t begin = at_ + tag_at;
  at_ += after;
  line_starting_ = false;
  if (type == '#') {
    comment(begin);
    return;
  }
  if (type == '%') {
    const std::size_t word = skip_space(at_);
    if (starts("raw", word)) {
      const std::size_t close = skip_space(word + 3);
      if (const std::size_t end = end_of_tag(close, "%}", false); end != kNone) {
        at_ = end;
        line_starting_ = source_[end - 1] == '\n';
        raw(begin);
        return;
      }
    }
  }
  add(type == '%' ? TokenKind::BlockBegin : TokenKind::VariableBegin, begin);
  tag(type == '%');
}

void Lexer::comment(std::size_t begin) {
  for (std::size_t i = at_; i < source_.size(); ++i) {
    i = source_.find('#', i);
    if (i == kNone) break;
    if (!starts("#}", i)) continue;
    const bool has_sign = i > at_ && (source_[i - 1] == '-' || source_[i - 1] == '+');
    at_ = end_of_tag(has_sign ? i - 1 : i, "#}", true);
    line_starting_ = source_[at_ - 1] == '\n';
    return;
  }
  fail("the comment is not closed; #} is missing", begin);
}

void Lexer::raw(std::size_t begin) {
  const std::size_t from = at_;
  for (std::size_t i = from; (i = source_.find("{%", i)) != kNone; ++i) {
    std::size_t word = i + 2;
    char sign = 0;
    if (word < source_.size() && (source_[word] == '-' || source_[word] == '+')) sign = source_[word++];
    word = skip_space(word);
    if (!starts("endraw", word)) continue;
    const std::size_t end = end_of_tag(skip_space(word + 6), "%}", true);
    if (end == kNone) continue;
    data(std::string_view(source_).substr(from, i - from), sign, true, from);
    at_ = end;
    line_starting_ = source_[end - 1] == '\n';
    return;
  }
  fail("the raw block is not closed; {% endraw %} is missing", begin);
}

void Lexer::tag(bool is_block) {
  const std::size_t begin = at_;
  std::string open;  // the closing brackets that are awaited
  while (at_ < source_.size()) {
    if (open.empty()) {
      if (const std::size_t end = end_of_tag(at_, is_block ? "%}" : "}}", is_block); end != kNone) {
        add(is_block ? TokenKind::BlockEnd : TokenKind::VariableEnd, at_);
        at_ = end;
        line_starting_ = source_[end - 1] == '\n';
        return;
      }
    }
    expression_token(begin, open);
  }
  // The parser says what it still expected.
}

void Lexer::expression_token(std::size_t begin, std::string& open) {
  if (const std::size_t end = skip_space(at_); end != at_) {
    at_ = end;
    return;
  }
  const char c = source_[at_];
  if (is_ascii_digit(c)) {
    number();
  } else if (c == '\'' || c == '"') {
    quoted(c);
  } else {
    std::size_t next = at_;
    const char32_t code = next_code_point(source_, next);
    if (is_identifier_start(code)) {
      name();
    } else {
      symbol(open);
    }
  }
  (void)begin;
}

void Lexer::name() {
  const std::size_t begin = at_;
  while (at_ < source_.size()) {
    std::size_t next = at_;
    if (!is_identifier_part(next_code_point(source_, next))) break;
    at_ = next;
  }
  add(TokenKind::Name, begin, source_.substr(begin, at_ - begin));
}

void Lexer::number() {
  const std::size_t begin = at_;
  // digits, single underscores between them
  const auto digits_end = [&](std::size_t at, auto is_one) {
    std::size_t end = at;
    while (end < source_.size()) {
      if (is_one(source_[end])) {
        ++end;
      } else if (source_[end] == '_' && end + 1 < source_.size() && is_one(source_[end + 1])) {
        end += 2;
      } else {
        break;
      }
    }
    return end;
  };
  const auto text_to = [&](std::size_t end) {
    std::string text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    return text;
  };
  // A float, unless a dot stands before: a.1.2 is two subscripts.
  if (begin == 0 || source_[begin - 1] != '.') {
    const std::size_t whole = digits_end(begin, is_ascii_digit);
    std::size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && is_ascii_digit(source_[end + 1]))
      end = digits_end(end + 1, is_ascii_digit);
    if (end < source_.size() && (source_[end] | 32) == 'e') {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_ascii_digit(source_[exponent]))
        end = digits_end(exponent, is_ascii_digit);
    }
    if (end != whole) {
      add(TokenKind::Number, begin, source_.substr(begin, end - begin), parse_float(text_to(end)));
      at_ = end;
      return;
    }
  }
  std::size_t end = begin;
  const char next = begin + 1 < source_.size() ? static_cast<char>(source_[begin + 1] | 32) : '\0';
  const auto prefixed = [&](auto is_one) {
    std::size_t from = begin + 2;
    if (from < source_.size() && source_[from] == '_') ++from;
    if (from < source_.size() && is_one(source_[from])) end = digits_end(from, is_one);
  };
  if (source_[begin] == '0' && next == 'x') {
    prefixed([](char c) { return is_ascii_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); });
  } else if (source_[begin] == '0' && next == 'o') {
    prefixed([](char c) { return c >= '0' && c <= '7'; });
  } else if (source_[begin] == '0' && next == 'b') {
    prefixed([](char c) { return c == '0' || c == '1'; });
  }
  if (end == begin) {
    end = source_[begin] == '0' ? digits_end(begin, [](char c) { return c == '0'; })
                                : digits_end(begin, is_ascii_digit);
  }
  Value value = parse_int(text_to(end), 0);
  if (value.is_missing()) fail("the integer has too many digits", begin);
  add(TokenKind::Number, begin, source_.substr(begin, end - begin), std::move(value));
  at_ = end;
}

void Lexer::quoted(char quote) {
  const std::size_t begin = at_;
  std::size_t end = begin + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) fail("the string is not closed", begin);
  try {
    add(TokenKind::String, begin, {},
        Value::string(unescape(std::string_view(source_).substr(begin + 1, end - begin - 1))));
  } catch (const Failure& failure) {
    fail(failure.message, begin);
  }
  at_ = end + 1;
}

void Lexer::symbol(std::string& open) {
  const std::string_view rest = std::string_view(source_).substr(at_);
  for (const std::string_view s : kSymbols) {
    if (!rest.starts_with(s)) continue;
    if (s == "(") open += ')';
    if (s == "[") open += ']';
    if (s == "{") open += '}';
    if (s == ")" || s == "]" || s == "}") {
      if (open.empty()) fail("unexpected '" + std::string(s) + "'", at_);
      if (open.back() != s[0])
        fail("unexpected '" + std::string(s) + "', expected '" + std::string(1, open.back()) + "'", at_);
      open.pop_back();
    }
    add(TokenKind::Symbol, at_, std::string(s));
    at_ += s.size();
    return;
  }
  std::size_t next = at_;
  (void)next_code_point(source_, next);
  fail("unexpected character '" + source_.substr(at_, next - at_) + "'", at_);
}

}  // namespace tandem::text::jinja
