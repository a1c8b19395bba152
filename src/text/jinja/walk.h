#pragma once

#include "text/jinja/ast.h"

namespace tandem::text::jinja {

// Calls `visit(name, access, position)` for every variable below a node, in the order Jinja's compiler
// meets them; macros, loops and call blocks are entered.
enum class Access { Read, Write, Parameter };

template <class Visit>
void walk_names(const Expression* node, Visit&& visit);

template <class Visit>
void walk_names(const CallArguments& arguments, Visit&& visit) {
  for (const auto& a : arguments.positional) walk_names(a.get(), visit);
  for (const auto& [name, a] : arguments.named) walk_names(a.get(), visit);
  walk_names(arguments.star.get(), visit);
  walk_names(arguments.star_star.get(), visit);
}

template <class Visit>
void walk_names(const Expression* node, Visit&& visit) {
  if (node == nullptr) return;
  switch (node->kind) {
    case ExpressionKind::Constant:
      return;
    case ExpressionKind::Name:
      visit(static_cast<const NameExpression*>(node)->name, Access::Read, node->at);
      return;
    case ExpressionKind::Attribute:
      walk_names(static_cast<const AttributeExpression*>(node)->object.get(), visit);
      return;
    case ExpressionKind::Call: {
      const auto& call = *static_cast<const CallExpression*>(node);
      walk_names(call.callee.get(), visit);
      walk_names(call.arguments, visit);
      return;
    }
    case ExpressionKind::Filter: {
      const auto& filter = *static_cast<const FilterExpression*>(node);
      walk_names(filter.input.get(), visit);
      walk_names(filter.arguments, visit);
      return;
    }
    case ExpressionKind::Test: {
      const auto& test = *static_cast<const TestExpression*>(node);
      walk_names(test.input.get(), visit);
      walk_names(test.arguments, visit);
      return;
    }
    case ExpressionKind::Binary:
      walk_names(static_cast<const BinaryExpression*>(node)->left.get(), visit);
      walk_names(static_cast<const BinaryExpression*>(node)->right.get(), visit);
      return;
    case ExpressionKind::Compare: {
      const auto& compare = *static_cast<const CompareExpression*>(node);
      walk_names(compare.first.get(), visit);
      for (const auto& [op, operand] : compare.rest) walk_names(operand.get(), visit);
      return;
    }
    default:
      for (const auto& operand : static_cast<const OperandsExpression*>(node)->operands)
        walk_names(operand.get(), visit);
  }
}

template <class Visit>
void walk_names(const Target& target, Access access, Visit&& visit) {
  if (target.kind == Target::Kind::Name) visit(target.name, access, target.at);
  // A namespace attribute reads its namespace, but Jinja does not count that as a use of the name.
  for (const Target& item : target.items) walk_names(item, access, visit);
}

template <class Visit>
void walk_names(const Block& block, Visit&& visit);

template <class Visit>
void walk_names(const MacroBody& macro, Position at, Visit&& visit) {
  for (const std::string& parameter : macro.parameters) visit(parameter, Access::Parameter, at);
  for (const auto& value : macro.defaults) walk_names(value.get(), visit);
  walk_names(macro.body, visit);
}

template <class Visit>
void walk_names(const Statement& statement, Visit&& visit) {
  switch (statement.kind) {
    case StatementKind::Output:
      walk_names(static_cast<const OutputStatement&>(statement).expression.get(), visit);
      return;
    case StatementKind::Set: {
      const auto& set = static_cast<const SetStatement&>(statement);
      walk_names(set.target, Access::Write, visit);
      walk_names(set.value.get(), visit);
      return;
    }
    case StatementKind::SetBlock: {
      const auto& set = static_cast<const SetBlockStatement&>(statement);
      walk_names(set.target, Access::Write, visit);
      walk_names(set.filter.get(), visit);
      walk_names(set.body, visit);
      return;
    }
    case StatementKind::If: {
      const auto& branch = static_cast<const IfStatement&>(statement);
      for (const auto& [condition, body] : branch.branches) {
        walk_names(condition.get(), visit);
        walk_names(body, visit);
      }
      walk_names(branch.otherwise, visit);
      return;
    }
    case StatementKind::For: {
      const auto& loop = static_cast<const ForStatement&>(statement);
      walk_names(loop.target, Access::Write, visit);
      walk_names(loop.iterable.get(), visit);
      walk_names(loop.body, visit);
      walk_names(loop.otherwise, visit);
      walk_names(loop.test.get(), visit);
      return;
    }
    case StatementKind::Macro:
      walk_names(static_cast<const MacroStatement&>(statement).macro, statement.at, visit);
      return;
    case StatementKind::CallBlock:
    case StatementKind::Generation: {
      const auto& call = static_cast<const CallBlockStatement&>(statement);
      walk_names(call.call.get(), visit);
      walk_names(call.caller, statement.at, visit);
      return;
    }
    case StatementKind::FilterBlock: {
      const auto& filter = static_cast<const FilterBlockStatement&>(statement);
      walk_names(filter.body, visit);
      walk_names(filter.filter.get(), visit);
      return;
    }
    case StatementKind::With: {
      const auto& with = static_cast<const WithStatement&>(statement);
      for (const Target& target : with.targets) walk_names(target, Access::Parameter, visit);
      for (const auto& value : with.values) walk_names(value.get(), visit);
      walk_names(with.body, visit);
      return;
    }
    case StatementKind::Break:
    case StatementKind::Continue:
      return;
  }
}

template <class Visit>
void walk_names(const Block& block, Visit&& visit) {
  for (const auto& statement : block) walk_names(*statement, visit);
}

}  // namespace tandem::text::jinja
