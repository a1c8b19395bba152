#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/context.h"

namespace tandem::text::jinja {

// The variables of one call of one function of the template.
struct Activation {
  Activation* outer = nullptr;
  std::vector<Value> slots;
  bool captured = false;  // a macro made here may be called later
};

// Walks the tree of one template for one rendering.
//
// Thread: the rendering's. Lifetime: tree and context outlive it, it outlives every value made.
// Throws Failure; the place of a failure is context.at.
class Evaluator {
 public:
  explicit Evaluator(Context& context) : context_(context) {}
  [[nodiscard]] std::string render(const TemplateTree& tree);

 private:
  enum class Flow { Normal, Break, Continue };
  class Depth;

  // evaluator_statement.cc
  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run_for(const ForStatement& loop);
  Flow run_if(const IfStatement& branch);
  Flow run_set_block(const SetBlockStatement& set);
  Flow run_filter_block(const FilterBlockStatement& filter);
  Flow run_with(const WithStatement& with);
  void run_call_block(const CallBlockStatement& call);
  void start(const std::vector<Load>& loads);
  void assign(const Target& target, const Value& value, bool exported);
  void print(const Value& value);
  void print(std::string_view text);
  Flow captured(const Block& block, std::string& text);
  bool next_item(const ForStatement& loop, class Cursor& cursor, bool& started, Value& item);

  // evaluator.cc
  Value evaluate(const Expression& node);
  Value evaluate_node(const Expression& node);
  Value conditional(const OperandsExpression& node);
  Value compare(const CompareExpression& node);
  Value concatenate(const OperandsExpression& node);
  Value make_sequence(const OperandsExpression& node);
  Value make_mapping(const OperandsExpression& node);
  Value slice(const OperandsExpression& node);
  Value apply_filter(const FilterExpression& node);
  Value apply_test(const TestExpression& node);
  Value call(const CallExpression& node, const Value* caller);
  Arguments arguments(const CallArguments& node);
  Value call_value(const Value& callee, Arguments& arguments);
  Value call_macro(const Macro& macro, Arguments& arguments);
  Value& slot(Variable variable);
  Activation& activate(std::uint32_t slots, Activation* outer);
  void leave(Activation& activation);

  Context& context_;
  Activation* current_ = nullptr;
  std::string* out_ = nullptr;
  Value block_input_;  // what a filter without input works on
  std::vector<std::unique_ptr<Activation>> activations_;
};

// One more nested evaluation while it lives. Limit failure beyond Limits::max_depth.
class Evaluator::Depth {
 public:
  explicit Depth(Context& context) : context_(context) {
    if (context.depth >= context.limits().max_depth) fail_too_deep(context);
    ++context.depth;
  }
  ~Depth() { --context_.depth; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  [[noreturn]] static void fail_too_deep(Context& context);
  Context& context_;
};

}  // namespace tandem::text::jinja
