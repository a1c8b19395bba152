#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace tandem::text::jinja {

enum class TokenKind : std::uint8_t {
  Data,  // text between tags, white space control applied
  BlockBegin,
  BlockEnd,
  VariableBegin,
  VariableEnd,
  Name,
  String,
  Number,
  Symbol,  // an operator or a bracket, `text` holds it
  End,
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::size_t offset = 0;  // in the source, for the position of errors
  std::string text;
  Value value = {};  // of String and Number
};

// Splits a template into tokens with Jinja's rules for trim_blocks and lstrip_blocks on, the signs - and
// + of tags, comments and raw blocks. One trailing newline is dropped and every line end is read as \n.
//
// Thread: any. Lifetime: the tokens own their text; `position` needs the lexer.
// Errors: throws Failure::Syntax with line and column (unclosed tags, brackets that do not pair, bytes
// that are not UTF-8 or no part of any token).
class Lexer {
 public:
  explicit Lexer(std::string_view source);
  [[nodiscard]] std::vector<Token> tokens();
  [[nodiscard]] Position position(std::size_t offset) const;

 private:
  void text_and_tag();
  void tag(bool is_block);
  void comment(std::size_t begin);
  void raw(std::size_t begin);
  void expression_token(std::size_t begin, std::string& open);
  void number();
  void name();
  void quoted(char quote);
  void symbol(std::string& open);
  void data(std::string_view text, char sign, bool may_strip_line, std::size_t offset);
  void add(TokenKind kind, std::size_t offset, std::string text = {}, Value value = {});
  [[nodiscard]] bool starts(std::string_view what, std::size_t at) const {
    return std::string_view(source_).substr(at).starts_with(what);
  }
  [[nodiscard]] std::size_t skip_space(std::size_t at) const;
  [[nodiscard]] std::size_t end_of_tag(std::size_t at, std::string_view closing, bool trims_newline) const;
  [[noreturn]] void fail(std::string message, std::size_t offset) const;

  std::string source_;
  std::vector<std::size_t> line_starts_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // what was consumed last ended a line
  std::vector<Token> tokens_;
};

// The value of a quoted string's inside, with Python's escapes. Throws Failure::Syntax without a place.
[[nodiscard]] std::string unescape(std::string_view inside);

}  // namespace tandem::text::jinja
