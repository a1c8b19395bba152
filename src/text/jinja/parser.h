#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace tandem::text::jinja {

// Recursive descent over the tokens, in Jinja's grammar. Nesting is bounded by kMaxNesting, so that the
// parser and whoever walks the tree later use a bounded stack.
//
// Throws Failure::Syntax with line and column. The tree's variables and filters are not resolved yet.
inline constexpr int kMaxNesting = 100;
inline constexpr int kMaxExpressionHeight = 400;

class Parser {
 public:
  explicit Parser(std::string_view source);
  [[nodiscard]] TemplateTree parse();

 private:
  class Nesting;

  // Statements: parser.cc
  Block block(std::initializer_list<std::string_view> ends);  // [] at the top
  Block body_until(std::initializer_list<std::string_view> ends);
  void statement(Block& out);
  StatementPtr set_statement(Position at);
  StatementPtr for_statement(Position at);
  StatementPtr if_statement(Position at);
  StatementPtr macro_statement(Position at);
  StatementPtr call_statement(Position at);
  StatementPtr generation_statement(Position at);
  StatementPtr filter_statement(Position at);
  StatementPtr with_statement(Position at);
  StatementPtr jump_statement(StatementKind kind, Position at, std::string_view word);
  void print_statement(Block& out);
  void printed(Block& out);
  void signature(MacroBody& macro);
  Target target(bool allows_namespace, bool ends_at_in);
  Target single_target(bool allows_namespace);
  std::string plain_name();

  // Expressions: parser_expression.cc
  ExpressionPtr expression(bool with_conditional = true);
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr tuple(bool with_conditional, bool ends_at_recursive, bool parenthesised);
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr test(ExpressionPtr input);
  std::unique_ptr<FilterExpression> filter(ExpressionPtr input);
  ExpressionPtr filter_chain(ExpressionPtr input, bool first_without_bar);
  CallArguments arguments();
  std::string dotted_name();

  // Tokens
  [[nodiscard]] const Token& current() const { return tokens_[next_]; }
  [[nodiscard]] const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] bool is_name(std::string_view word) const {
    return current().kind == TokenKind::Name && current().text == word;
  }
  [[nodiscard]] bool is_symbol(std::string_view s) const {
    return current().kind == TokenKind::Symbol && current().text == s;
  }
  bool skip_name(std::string_view word);
  bool skip_symbol(std::string_view s);
  void expect_symbol(std::string_view s);
  void expect_name(std::string_view word);
  void expect_block_end();
  Token take();
  [[nodiscard]] Position here() const { return lexer_.position(current().offset); }
  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void fail(std::string message, Position at) const;
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[nodiscard]] std::string described() const;

  // Makes `child` count in the height of `node`; fails beyond kMaxExpressionHeight.
  void grow(Expression& node, const Expression* child) const;
  void grow(Expression& node, const CallArguments& arguments) const;

  Lexer lexer_;
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                     // open for bodies within the current macro, for break and continue
  std::vector<std::string> awaited_;  // how the open blocks can go on, for messages
};

}  // namespace tandem::text::jinja
