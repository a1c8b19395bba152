#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/failure.h"
#include "text/jinja/number.h"
#include "text/jinja/registry.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {

// The parsed template. Built by the parser, completed by the scope pass (slots and filter lookups), then
// never changed: any number of threads may evaluate it at once.

// Where a variable lives: `slot` of the activation `hops` functions further out.
struct Variable {
  std::uint32_t hops = 0;
  std::uint32_t slot = 0;
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : std::uint8_t {
  Constant,
  Name,
  Tuple,
  List,
  Dict,
  Attribute,
  Item,
  Slice,
  Call,
  Filter,
  Test,
  Conditional,
  And,
  Or,
  Not,
  Negative,
  Positive,
  Binary,
  Compare,
  Concat,
};

struct Expression {
  Expression(ExpressionKind k, Position p) : kind(k), at(p) {}
  virtual ~Expression() = default;
  ExpressionKind kind;
  std::uint16_t height = 1;  // of the tree below; bounded by the parser
  Position at;
};

struct ConstantExpression : Expression {
  ConstantExpression(Position p, Value v) : Expression(ExpressionKind::Constant, p), value(std::move(v)) {}
  Value value;
};

struct NameExpression : Expression {
  NameExpression(Position p, std::string n) : Expression(ExpressionKind::Name, p), name(std::move(n)) {}
  std::string name;
  Variable variable;
};

// Tuple, List, Concat, And, Or; Dict has keys and values alternating; Not, Negative, Positive have one
// operand, Conditional has test, then, and else or nullptr; Slice has object, start, stop, step, each
// but the first perhaps nullptr; Item has object and key.
struct OperandsExpression : Expression {
  OperandsExpression(ExpressionKind k, Position p, std::vector<ExpressionPtr> o = {})
      : Expression(k, p), operands(std::move(o)) {}
  std::vector<ExpressionPtr> operands;
};

struct BinaryExpression : Expression {
  BinaryExpression(Position p, Operator o, ExpressionPtr l, ExpressionPtr r)
      : Expression(ExpressionKind::Binary, p), op(o), left(std::move(l)), right(std::move(r)) {}
  Operator op;
  ExpressionPtr left, right;
};

enum class Comparison : std::uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };

struct CompareExpression : Expression {
  explicit CompareExpression(Position p) : Expression(ExpressionKind::Compare, p) {}
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;  // a < b < c is two
};

struct AttributeExpression : Expression {
  AttributeExpression(Position p, ExpressionPtr o, std::string n)
      : Expression(ExpressionKind::Attribute, p), object(std::move(o)), name(std::move(n)) {}
  ExpressionPtr object;
  std::string name;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;
};

struct CallExpression : Expression {
  explicit CallExpression(Position p) : Expression(ExpressionKind::Call, p) {}
  ExpressionPtr callee;
  CallArguments arguments;
};

struct FilterExpression : Expression {
  explicit FilterExpression(Position p) : Expression(ExpressionKind::Filter, p) {}
  ExpressionPtr input;  // nullptr: the body of a filter block or a block set
  std::string name;
  const NativeFilter* filter = nullptr;  // nullptr: unknown, an error when it is reached
  CallArguments arguments;
};

struct TestExpression : Expression {
  explicit TestExpression(Position p) : Expression(ExpressionKind::Test, p) {}
  ExpressionPtr input;
  std::string name;
  const NativeTest* test = nullptr;  // nullptr as for filters
  CallArguments arguments;
};

// What can stand left of = or in a for: a name, a namespace attribute, or a tuple of these.
struct Target {
  enum class Kind : std::uint8_t { Name, NamespaceAttribute, Tuple };
  Kind kind = Kind::Name;
  Position at;
  std::string name;
  std::string attribute;
  Variable variable;
  std::vector<Target> items;
};

// How the variables of a scope start: from a variable further out, from the context by name, or empty.
struct Load {
  enum class From : std::uint8_t { Outer, Context, Nothing };
  std::uint32_t slot = 0;
  From from = From::Nothing;
  Variable outer;
  std::string name;
};

enum class StatementKind : std::uint8_t {
  Output,
  Set,
  SetBlock,
  If,
  For,
  Macro,
  CallBlock,
  FilterBlock,
  With,
  Break,
  Continue,
  Generation,
};

struct Statement {
  Statement(StatementKind k, Position p) : kind(k), at(p) {}
  virtual ~Statement() = default;
  StatementKind kind;
  Position at;
};
using StatementPtr = std::unique_ptr<Statement>;
using Block = std::vector<StatementPtr>;

// Text (input == nullptr) or a printed expression.
struct OutputStatement : Statement {
  explicit OutputStatement(Position p) : Statement(StatementKind::Output, p) {}
  std::string text;
  ExpressionPtr expression;
};

struct SetStatement : Statement {
  explicit SetStatement(Position p) : Statement(StatementKind::Set, p) {}
  Target target;
  ExpressionPtr value;
  bool exported = false;  // at the top level: seen through the context
};

struct SetBlockStatement : Statement {
  explicit SetBlockStatement(Position p) : Statement(StatementKind::SetBlock, p) {}
  Target target;
  std::unique_ptr<FilterExpression> filter;  // may be nullptr
  Block body;
  std::vector<Load> loads;
  bool exported = false;
};

struct IfStatement : Statement {
  explicit IfStatement(Position p) : Statement(StatementKind::If, p) {}
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // if and elif
  Block otherwise;
};

struct ForStatement : Statement {
  explicit ForStatement(Position p) : Statement(StatementKind::For, p) {}
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr test;  // may be nullptr
  Target test_target;  // the target in the test's scope
  Block body, otherwise;
  std::vector<Load> body_loads, test_loads, otherwise_loads;
  bool has_loop = false;  // the body mentions `loop`
  std::uint32_t loop_slot = 0;
};

// The function behind a macro, a call block or a generation block.
struct MacroBody {
  std::vector<std::string> parameters;
  std::vector<std::uint32_t> parameter_slots;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Block body;
  std::vector<Load> loads;
  std::uint32_t slots = 0;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  std::uint32_t caller_slot = 0, kwargs_slot = 0, varargs_slot = 0;
};

struct MacroStatement : Statement {
  explicit MacroStatement(Position p) : Statement(StatementKind::Macro, p) {}
  std::string name;
  Variable variable;
  bool exported = false;
  MacroBody macro;
};

struct CallBlockStatement : Statement {  // Generation: call is nullptr, the body is printed
  CallBlockStatement(StatementKind k, Position p) : Statement(k, p) {}
  std::unique_ptr<CallExpression> call;
  MacroBody caller;
};

struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(Position p) : Statement(StatementKind::FilterBlock, p) {}
  std::unique_ptr<FilterExpression> filter;
  Block body;
  std::vector<Load> loads;
};

struct WithStatement : Statement {
  explicit WithStatement(Position p) : Statement(StatementKind::With, p) {}
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;
  Block body;
  std::vector<Load> loads;
};

struct JumpStatement : Statement {  // Break and Continue
  using Statement::Statement;
};

struct TemplateTree {
  std::set<std::string> reads;  // names that are asked of the context
  Block body;
  std::vector<Load> loads;
  std::uint32_t slots = 0;
};

}  // namespace tandem::text::jinja
