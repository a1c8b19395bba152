// Statements. The expressions are in parser_expression.cc.

#include "text/jinja/parser.h"

#include <utility>

#include "text/jinja/nesting.h"

namespace tandem::text::jinja {
namespace {

bool is_constant_word(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

std::string joined(std::initializer_list<std::string_view> words) {
  std::string out;
  for (const std::string_view word : words) {
    if (!out.empty()) out += " or ";
    out += word;
  }
  return out;
}

// Tags that Jinja has and a chat template has no use for.
constexpr std::string_view kRefusedTags[] = {"block",      "extends", "include", "import", "from",
                                             "autoescape", "do",      "trans",   "debug"};

}  // namespace

Parser::Parser(std::string_view source) : lexer_(source), tokens_(lexer_.tokens()) {}

TemplateTree Parser::parse() {
  TemplateTree tree;
  tree.body = block({});
  return tree;
}

Block Parser::block(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Block out;
  while (true) {
    switch (current().kind) {
      case TokenKind::End:
        if (ends.size() > 0) fail("unexpected end of the template, expected " + joined(ends));
        return out;
      case TokenKind::Data: {
        auto output = std::make_unique<OutputStatement>(here());
        output->text = take().text;
        out.push_back(std::move(output));
        break;
      }
      case TokenKind::VariableBegin:
        take();
        printed(out);
        if (current().kind != TokenKind::VariableEnd) fail_expected("}}");
        take();
        break;
      case TokenKind::BlockBegin:
        take();
        for (const std::string_view end : ends)
          if (is_name(end)) return out;
        awaited_.push_back(joined(ends));
        statement(out);
        awaited_.pop_back();
        expect_block_end();
        break;
      default:
        fail_expected("text or a tag");
    }
  }
}

Block Parser::body_until(std::initializer_list<std::string_view> ends) {
  (void)skip_symbol(":");
  expect_block_end();
  return block(ends);
}

void Parser::printed(Block& out) {
  auto output = std::make_unique<OutputStatement>(here());
  output->expression = tuple(true, false, false);
  out.push_back(std::move(output));
}

void Parser::statement(Block& out) {
  if (current().kind != TokenKind::Name) fail_expected("the name of a tag");
  const Position at = here();
  const std::string word = current().text;
  if (word == "print") {
    take();
    print_statement(out);
  } else if (word == "set") {
    out.push_back(set_statement(at));
  } else if (word == "for") {
    out.push_back(for_statement(at));
  } else if (word == "if") {
    out.push_back(if_statement(at));
  } else if (word == "macro") {
    out.push_back(macro_statement(at));
  } else if (word == "call") {
    out.push_back(call_statement(at));
  } else if (word == "generation") {
    out.push_back(generation_statement(at));
  } else if (word == "filter") {
    out.push_back(filter_statement(at));
  } else if (word == "with") {
    out.push_back(with_statement(at));
  } else if (word == "break") {
    out.push_back(jump_statement(StatementKind::Break, at, word));
  } else if (word == "continue") {
    out.push_back(jump_statement(StatementKind::Continue, at, word));
  } else {
    for (const std::string_view refused : kRefusedTags)
      if (word == refused) fail("the tag '" + word + "' is not supported in chat templates", at);
    const std::string& awaited = awaited_.back();
    fail("unknown tag '" + word + "'" + (awaited.empty() ? "" : ", expected " + awaited), at);
  }
}

void Parser::print_statement(Block& out) {
  bool first = true;
  while (current().kind != TokenKind::BlockEnd) {
    if (!first) expect_symbol(",");
    first = false;
    auto output = std::make_unique<OutputStatement>(here());
    output->expression = expression();
    out.push_back(std::move(output));
  }
}

StatementPtr Parser::jump_statement(StatementKind kind, Position at, std::string_view word) {
  if (loops_ == 0) fail("'" + std::string(word) + "' stands outside of a loop", at);
  take();
  return std::make_unique<JumpStatement>(kind, at);
}

StatementPtr Parser::set_statement(Position at) {
  take();
  Target to = target(true, false);
  if (skip_symbol("=")) {
    auto set = std::make_unique<SetStatement>(at);
    set->target = std::move(to);
    set->value = tuple(true, false, false);
    return set;
  }
  auto set = std::make_unique<SetBlockStatement>(at);
  set->target = std::move(to);
  if (is_symbol("|")) {
    ExpressionPtr chain = filter_chain(nullptr, false);
    set->filter.reset(static_cast<FilterExpression*>(chain.release()));
  }
  set->body = body_until({"endset"});
  take();
  return set;
}

StatementPtr Parser::for_statement(Position at) {
  take();
  auto loop = std::make_unique<ForStatement>(at);
  loop->target = target(false, true);
  loop->test_target = loop->target;
  expect_name("in");
  loop->iterable = tuple(false, true, false);
  if (skip_name("if")) loop->test = expression();
  if (is_name("recursive")) fail("recursive loops are not supported; use a macro that calls itself");
  ++loops_;
  loop->body = body_until({"endfor", "else"});
  --loops_;
  if (take().text == "else") {
    loop->otherwise = body_until({"endfor"});
    take();
  }
  return loop;
}

StatementPtr Parser::if_statement(Position at) {
  take();
  auto out = std::make_unique<IfStatement>(at);
  while (true) {
    ExpressionPtr condition = tuple(false, false, false);
    Block body = body_until({"elif", "else", "endif"});
    out->branches.emplace_back(std::move(condition), std::move(body));
    const std::string word = take().text;
    if (word == "elif") continue;
    if (word == "else") {
      out->otherwise = body_until({"endif"});
      take();
    }
    return out;
  }
}

std::string Parser::plain_name() {
  if (current().kind != TokenKind::Name) fail_expected("a name");
  if (is_constant_word(current().text)) fail("can't assign to '" + current().text + "'");
  return take().text;
}

void Parser::signature(MacroBody& macro) {
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (!macro.parameters.empty()) expect_symbol(",");
    macro.parameters.push_back(plain_name());
    if (skip_symbol("=")) {
      macro.defaults.push_back(expression());
    } else if (!macro.defaults.empty()) {
      fail("a parameter without a default follows one that has a default");
    }
  }
  expect_symbol(")");
  std::vector<std::string> sorted = macro.parameters;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) fail("two parameters have one name");
}

StatementPtr Parser::macro_statement(Position at) {
  take();
  auto out = std::make_unique<MacroStatement>(at);
  out->name = plain_name();
  signature(out->macro);
  const int loops = std::exchange(loops_, 0);
  out->macro.body = body_until({"endmacro"});
  loops_ = loops;
  take();
  return out;
}

StatementPtr Parser::call_statement(Position at) {
  take();
  auto out = std::make_unique<CallBlockStatement>(StatementKind::CallBlock, at);
  if (is_symbol("(")) signature(out->caller);
  const Position call_at = here();
  ExpressionPtr call = expression();
  if (call->kind != ExpressionKind::Call) fail("a call block needs a call", call_at);
  out->call.reset(static_cast<CallExpression*>(call.release()));
  const int loops = std::exchange(loops_, 0);
  out->caller.body = body_until({"endcall"});
  loops_ = loops;
  take();
  return out;
}

StatementPtr Parser::generation_statement(Position at) {
  take();
  auto out = std::make_unique<CallBlockStatement>(StatementKind::Generation, at);
  const int loops = std::exchange(loops_, 0);
  out->caller.body = body_until({"endgeneration"});
  loops_ = loops;
  take();
  return out;
}

StatementPtr Parser::filter_statement(Position at) {
  take();
  auto out = std::make_unique<FilterBlockStatement>(at);
  ExpressionPtr chain = filter_chain(nullptr, true);
  out->filter.reset(static_cast<FilterExpression*>(chain.release()));
  out->body = body_until({"endfilter"});
  take();
  return out;
}

StatementPtr Parser::with_statement(Position at) {
  take();
  auto out = std::make_unique<WithStatement>(at);
  while (current().kind != TokenKind::BlockEnd) {
    if (!out->targets.empty()) expect_symbol(",");
    out->targets.push_back(target(false, false));
    expect_symbol("=");
    out->values.push_back(expression());
  }
  out->body = body_until({"endwith"});
  take();
  return out;
}

Target Parser::single_target(bool allows_namespace) {
  const Nesting nesting(*this);
  Target out;
  out.at = here();
  if (skip_symbol("(")) {
    out.kind = Target::Kind::Tuple;
    bool has_comma = false;
    while (!is_symbol(")")) {
      out.items.push_back(single_target(false));
      if (!skip_symbol(",")) break;
      has_comma = true;
    }
    expect_symbol(")");
    if (out.items.size() == 1 && !has_comma) {
      Target inner = std::move(out.items.front());
      return inner;
    }
    return out;
  }
  if (current().kind != TokenKind::Name) fail("can't assign to " + described());
  if (allows_namespace && following().kind == TokenKind::Symbol && following().text == ".") {
    out.kind = Target::Kind::NamespaceAttribute;
    out.name = take().text;
    take();
    if (current().kind != TokenKind::Name) fail_expected("the name of an attribute");
    out.attribute = take().text;
    return out;
  }
  out.name = plain_name();
  return out;
}

Target Parser::target(bool allows_namespace, bool ends_at_in) {
  Target out;
  out.kind = Target::Kind::Tuple;
  out.at = here();
  bool has_comma = false;
  while (true) {
    const bool ends =
        current().kind == TokenKind::BlockEnd || is_symbol(")") || (ends_at_in && is_name("in"));
    if (ends && has_comma) break;
    out.items.push_back(single_target(allows_namespace));
    if (!skip_symbol(",")) break;
    has_comma = true;
  }
  if (has_comma) return out;
  Target only = std::move(out.items.front());
  return only;
}

// Tokens

Token Parser::take() {
  Token token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool Parser::skip_name(std::string_view word) {
  if (!is_name(word)) return false;
  take();
  return true;
}

bool Parser::skip_symbol(std::string_view s) {
  if (!is_symbol(s)) return false;
  take();
  return true;
}

void Parser::expect_symbol(std::string_view s) {
  if (!skip_symbol(s)) fail_expected("'" + std::string(s) + "'");
}

void Parser::expect_name(std::string_view word) {
  if (!skip_name(word)) fail_expected("'" + std::string(word) + "'");
}

void Parser::expect_block_end() {
  if (current().kind != TokenKind::BlockEnd) fail_expected("%}");
  take();
}

std::string Parser::described() const {
  switch (current().kind) {
    case TokenKind::Data:
      return "text";
    case TokenKind::BlockBegin:
      return "'{%'";
    case TokenKind::BlockEnd:
      return "'%}'";
    case TokenKind::VariableBegin:
      return "'{{'";
    case TokenKind::VariableEnd:
      return "'}}'";
    case TokenKind::String:
      return "a string";
    case TokenKind::End:
      return "the end of the template";
    default:
      return "'" + current().text + "'";
  }
}

void Parser::fail(std::string message) const { fail(std::move(message), here()); }

void Parser::fail(std::string message, Position at) const {
  throw Failure{Failure::Kind::Syntax, std::move(message), at};
}

void Parser::fail_expected(std::string_view what) const {
  fail("expected " + std::string(what) + ", got " + described());
}

}  // namespace tandem::text::jinja
