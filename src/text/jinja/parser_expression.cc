// Expressions, from the loosest binding (a if b else c) to the tightest (literals, a.b, a[b], a(b)).

#include <optional>

#include "text/jinja/nesting.h"
#include "text/jinja/parser.h"

namespace tandem::text::jinja {
namespace {

std::vector<ExpressionPtr> pair_of(ExpressionPtr a, ExpressionPtr b) {
  std::vector<ExpressionPtr> out;
  out.push_back(std::move(a));
  out.push_back(std::move(b));
  return out;
}

}  // namespace

void Parser::grow(Expression& node, const Expression* child) const {
  if (child == nullptr) return;
  if (child->height >= kMaxExpressionHeight)
    fail("the expression has more than " + std::to_string(kMaxExpressionHeight) + " levels", node.at);
  node.height = std::max<std::uint16_t>(node.height, static_cast<std::uint16_t>(child->height + 1));
}

void Parser::grow(Expression& node, const CallArguments& arguments) const {
  for (const auto& a : arguments.positional) grow(node, a.get());
  for (const auto& [name, a] : arguments.named) grow(node, a.get());
  grow(node, arguments.star.get());
  grow(node, arguments.star_star.get());
}

ExpressionPtr Parser::expression(bool with_conditional) {
  if (with_conditional) return conditional();
  const Nesting nesting(*this);
  return disjunction();
}

ExpressionPtr Parser::conditional() {
  const Nesting nesting(*this);
  Position at = here();
  ExpressionPtr left = disjunction();
  while (skip_name("if")) {
    auto node = std::make_unique<OperandsExpression>(ExpressionKind::Conditional, at);
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = skip_name("else") ? conditional() : nullptr;
    grow(*node, condition.get());
    grow(*node, left.get());
    grow(*node, otherwise.get());
    node->operands.push_back(std::move(condition));
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(otherwise));
    left = std::move(node);
    at = here();
  }
  return left;
}

ExpressionPtr Parser::disjunction() {
  ExpressionPtr left = conjunction();
  while (is_name("or")) {
    const Position at = here();
    take();
    auto node =
        std::make_unique<OperandsExpression>(ExpressionKind::Or, at, pair_of(std::move(left), conjunction()));
    for (const auto& operand : node->operands) grow(*node, operand.get());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::conjunction() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    const Position at = here();
    take();
    auto node =
        std::make_unique<OperandsExpression>(ExpressionKind::And, at, pair_of(std::move(left), negation()));
    for (const auto& operand : node->operands) grow(*node, operand.get());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  const Nesting nesting(*this);
  auto node = std::make_unique<OperandsExpression>(ExpressionKind::Not, here());
  take();
  node->operands.push_back(negation());
  grow(*node, node->operands[0].get());
  return node;
}

ExpressionPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kSigns[] = {
      {"==", Comparison::Equal},     {"!=", Comparison::NotEqual}, {"<", Comparison::Less},
      {"<=", Comparison::LessEqual}, {">", Comparison::Greater},   {">=", Comparison::GreaterEqual}};
  ExpressionPtr first = sum();
  std::unique_ptr<CompareExpression> node;
  while (true) {
    const Position at = here();
    std::optional<Comparison> comparison;
    if (current().kind == TokenKind::Symbol) {
      for (const auto& [sign, value] : kSigns)
        if (current().text == sign) comparison = value;
      if (comparison) take();
    } else if (skip_name("in")) {
      comparison = Comparison::In;
    } else if (is_name("not") && following().kind == TokenKind::Name && following().text == "in") {
      take();
      take();
      comparison = Comparison::NotIn;
    }
    if (!comparison) break;
    if (!node) {
      node = std::make_unique<CompareExpression>(at);
      grow(*node, first.get());
      node->first = std::move(first);
    }
    node->rest.emplace_back(*comparison, sum());
    grow(*node, node->rest.back().second.get());
  }
  if (node) return node;
  return first;
}

ExpressionPtr Parser::sum() {
  ExpressionPtr left = concatenation();
  while (is_symbol("+") || is_symbol("-")) {
    const Position at = here();
    const Operator op = take().text == "+" ? Operator::Add : Operator::Subtract;
    auto node = std::make_unique<BinaryExpression>(at, op, std::move(left), concatenation());
    grow(*node, node->left.get());
    grow(*node, node->right.get());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  const Position at = here();
  ExpressionPtr first = product();
  if (!is_symbol("~")) return first;
  auto node = std::make_unique<OperandsExpression>(ExpressionKind::Concat, at);
  node->operands.push_back(std::move(first));
  while (skip_symbol("~")) node->operands.push_back(product());
  for (const auto& operand : node->operands) grow(*node, operand.get());
  return node;
}

ExpressionPtr Parser::product() {
  ExpressionPtr left = power();
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    const Position at = here();
    const std::string sign = take().text;
    const Operator op = sign == "*"    ? Operator::Multiply
                        : sign == "/"  ? Operator::Divide
                        : sign == "//" ? Operator::FloorDivide
                                       : Operator::Modulo;
    auto node = std::make_unique<BinaryExpression>(at, op, std::move(left), power());
    grow(*node, node->left.get());
    grow(*node, node->right.get());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::power() {
  ExpressionPtr left = unary();
  while (is_symbol("**")) {  // to the left, other than in Python
    const Position at = here();
    take();
    auto node = std::make_unique<BinaryExpression>(at, Operator::Power, std::move(left), unary());
    grow(*node, node->left.get());
    grow(*node, node->right.get());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filter) {
  ExpressionPtr node;
  if (is_symbol("-") || is_symbol("+")) {
    const Nesting nesting(*this);
    const Position at = here();
    const ExpressionKind kind = take().text == "-" ? ExpressionKind::Negative : ExpressionKind::Positive;
    auto sign = std::make_unique<OperandsExpression>(kind, at);
    sign->operands.push_back(unary(false));
    grow(*sign, sign->operands[0].get());
    node = std::move(sign);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::primary() {
  const Position at = here();
  switch (current().kind) {
    case TokenKind::Name: {
      std::string word = take().text;
      if (word == "true" || word == "True")
        return std::make_unique<ConstantExpression>(at, Value::boolean(true));
      if (word == "false" || word == "False")
        return std::make_unique<ConstantExpression>(at, Value::boolean(false));
      if (word == "none" || word == "None") return std::make_unique<ConstantExpression>(at, Value::none());
      return std::make_unique<NameExpression>(at, std::move(word));
    }
    case TokenKind::String: {
      Value value = take().value;
      if (current().kind == TokenKind::String) {  // adjacent strings are one
        std::string text = value.as_string();
        while (current().kind == TokenKind::String) text += take().value.as_string();
        value = Value::string(std::move(text));
      }
      return std::make_unique<ConstantExpression>(at, std::move(value));
    }
    case TokenKind::Number:
      return std::make_unique<ConstantExpression>(at, take().value);
    case TokenKind::Symbol:
      if (skip_symbol("(")) {
        ExpressionPtr inner = tuple(true, false, true);
        expect_symbol(")");
        return inner;
      }
      if (is_symbol("[")) return list();
      if (is_symbol("{")) return dict();
      [[fallthrough]];
    default:
      fail("unexpected " + described());
  }
}

ExpressionPtr Parser::tuple(bool with_conditional, bool ends_at_recursive, bool parenthesised) {
  auto node = std::make_unique<OperandsExpression>(ExpressionKind::Tuple, here());
  bool has_comma = false;
  while (true) {
    const bool ends = current().kind == TokenKind::VariableEnd || current().kind == TokenKind::BlockEnd ||
                      is_symbol(")") || (ends_at_recursive && is_name("recursive"));
    if (ends) break;
    node->operands.push_back(expression(with_conditional));
    if (!skip_symbol(",")) break;
    has_comma = true;
  }
  if (!has_comma) {
    if (!node->operands.empty()) return std::move(node->operands.front());
    if (!parenthesised) fail_expected("an expression");
  }
  for (const auto& operand : node->operands) grow(*node, operand.get());
  return node;
}

ExpressionPtr Parser::list() {
  auto node = std::make_unique<OperandsExpression>(ExpressionKind::List, here());
  expect_symbol("[");
  while (!is_symbol("]")) {
    node->operands.push_back(expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("]");
  for (const auto& operand : node->operands) grow(*node, operand.get());
  return node;
}

ExpressionPtr Parser::dict() {
  auto node = std::make_unique<OperandsExpression>(ExpressionKind::Dict, here());
  expect_symbol("{");
  while (!is_symbol("}")) {
    node->operands.push_back(expression());
    expect_symbol(":");
    node->operands.push_back(expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("}");
  for (const auto& operand : node->operands) grow(*node, operand.get());
  return node;
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (is_symbol(".") || is_symbol("[")) {
      node = subscript(std::move(node));
    } else if (is_symbol("(")) {
      auto call = std::make_unique<CallExpression>(here());
      call->arguments = arguments();
      grow(*call, node.get());
      grow(*call, call->arguments);
      call->callee = std::move(node);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (is_symbol("|")) {
      node = filter_chain(std::move(node), false);
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_symbol("(")) {
      auto call = std::make_unique<CallExpression>(here());
      call->arguments = arguments();
      grow(*call, node.get());
      grow(*call, call->arguments);
      call->callee = std::move(node);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr object) {
  const Position at = here();
  if (skip_symbol(".")) {
    if (current().kind == TokenKind::Name) {
      auto node = std::make_unique<AttributeExpression>(at, std::move(object), take().text);
      grow(*node, node->object.get());
      return node;
    }
    if (current().kind != TokenKind::Number || current().value.is(Kind::Float))
      fail_expected("a name or a number");
    ExpressionPtr index = std::make_unique<ConstantExpression>(here(), current().value);
    take();
    auto node = std::make_unique<OperandsExpression>(ExpressionKind::Item, at,
                                                     pair_of(std::move(object), std::move(index)));
    grow(*node, node->operands[0].get());
    return node;
  }
  expect_symbol("[");
  if (skip_symbol("]")) {  // Jinja takes a[] for a[()]
    auto node = std::make_unique<OperandsExpression>(
        ExpressionKind::Item, at,
        pair_of(std::move(object), std::make_unique<OperandsExpression>(ExpressionKind::Tuple, at)));
    for (const auto& operand : node->operands) grow(*node, operand.get());
    return node;
  }
  auto slice = std::make_unique<OperandsExpression>(ExpressionKind::Slice, at);
  slice->operands.push_back(nullptr);  // the object, below
  bool is_slice = false;
  for (int part = 0; part < 3; ++part) {
    const bool empty = is_symbol(":") || is_symbol("]");
    slice->operands.push_back(empty ? nullptr : expression());
    if (part == 2 || !skip_symbol(":")) break;
    is_slice = true;
  }
  ExpressionPtr key;
  if (!is_slice && is_symbol(",")) {  // a[1, 2]: one key that is a tuple
    auto keys = std::make_unique<OperandsExpression>(ExpressionKind::Tuple, at);
    keys->operands.push_back(std::move(slice->operands[1]));
    while (skip_symbol(",")) keys->operands.push_back(expression());
    for (const auto& k : keys->operands) grow(*keys, k.get());
    key = std::move(keys);
  } else if (!is_slice) {
    key = std::move(slice->operands[1]);
  }
  expect_symbol("]");
  if (!is_slice) {
    auto node = std::make_unique<OperandsExpression>(ExpressionKind::Item, at,
                                                     pair_of(std::move(object), std::move(key)));
    for (const auto& operand : node->operands) grow(*node, operand.get());
    return node;
  }
  slice->operands[0] = std::move(object);
  slice->operands.resize(4);
  for (const auto& operand : slice->operands) grow(*slice, operand.get());
  return slice;
}

CallArguments Parser::arguments() {
  const Position at = here();
  CallArguments out;
  const auto require = [&](bool ok) {
    if (!ok) fail("the arguments of the call are in the wrong order", at);
  };
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (skip_symbol("*")) {
      require(!out.star && !out.star_star);
      out.star = expression();
    } else if (skip_symbol("**")) {
      require(!out.star_star);
      out.star_star = expression();
    } else if (current().kind == TokenKind::Name && following().kind == TokenKind::Symbol &&
               following().text == "=") {
      require(!out.star_star);
      std::string name = take().text;
      take();
      for (const auto& [other, value] : out.named)
        if (other == name) fail("the argument '" + name + "' is given twice");
      ExpressionPtr value = expression();
      out.named.emplace_back(std::move(name), std::move(value));
    } else {
      require(!out.star && !out.star_star && out.named.empty());
      out.positional.push_back(expression());
    }
    if (!skip_symbol(",")) break;
  }
  expect_symbol(")");
  return out;
}

std::string Parser::dotted_name() {
  if (current().kind != TokenKind::Name) fail_expected("a name");
  std::string name = take().text;
  while (skip_symbol(".")) {
    if (current().kind != TokenKind::Name) fail_expected("a name");
    name += "." + take().text;
  }
  return name;
}

std::unique_ptr<FilterExpression> Parser::filter(ExpressionPtr input) {
  auto node = std::make_unique<FilterExpression>(here());
  node->name = dotted_name();
  if (is_symbol("(")) node->arguments = arguments();
  grow(*node, input.get());
  grow(*node, node->arguments);
  node->input = std::move(input);
  return node;
}

ExpressionPtr Parser::filter_chain(ExpressionPtr input, bool first_without_bar) {
  if (first_without_bar) input = filter(std::move(input));
  while (skip_symbol("|")) input = filter(std::move(input));
  return input;
}

ExpressionPtr Parser::test(ExpressionPtr input) {
  auto node = std::make_unique<TestExpression>(here());
  take();
  const bool negated = skip_name("not");
  node->name = dotted_name();
  const Token& next = current();
  const bool has_operand =
      next.kind == TokenKind::String || next.kind == TokenKind::Number || is_symbol("[") || is_symbol("{") ||
      (next.kind == TokenKind::Name && next.text != "else" && next.text != "or" && next.text != "and");
  if (is_symbol("(")) {
    node->arguments = arguments();
  } else if (has_operand) {
    if (is_name("is")) fail("tests cannot be chained with 'is'");
    const Nesting nesting(*this);
    node->arguments.positional.push_back(postfix(primary()));
  }
  grow(*node, input.get());
  grow(*node, node->arguments);
  node->input = std::move(input);
  if (!negated) return node;
  auto outer = std::make_unique<OperandsExpression>(ExpressionKind::Not, node->at);
  grow(*outer, node.get());
  outer->operands.push_back(std::move(node));
  return outer;
}

}  // namespace tandem::text::jinja
