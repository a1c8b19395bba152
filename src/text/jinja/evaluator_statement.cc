#include <utility>

#include "text/jinja/evaluator.h"
#include "text/jinja/operations.h"

namespace tandem::text::jinja {
namespace {

std::vector<Value> unpacked(Context& context, const Value& value, std::size_t count) {
  if (!is_iterable(value))
    fail_runtime("cannot unpack non-iterable " + std::string(type_name(value)) + " object");
  Cursor cursor(value);
  std::vector<Value> out;
  Value item;
  while (cursor.next(item)) {
    context.step();
    if (out.size() == count)
      fail_runtime("too many values to unpack (expected " + std::to_string(count) + ")");
    out.push_back(std::move(item));
  }
  if (out.size() < count)
    fail_runtime("not enough values to unpack (expected " + std::to_string(count) + ", got " +
                 std::to_string(out.size()) + ")");
  return out;
}

std::int64_t countable_length(const Value& iterable, bool is_filtered) {
  return is_filtered ? -1 : length_of(iterable);
}

}  // namespace

void Evaluator::print(std::string_view text) {
  context_.step(text.size() / 64);
  if (text.size() + out_->size() > context_.limits().max_output_bytes)
    fail_limit("the output is longer than " + std::to_string(context_.limits().max_output_bytes) + " bytes");
  out_->append(text);
}

void Evaluator::print(const Value& value) {
  if (value.is_string()) {
    print(std::string_view(value.as_string()));
    return;
  }
  std::string text;
  append_text(text, value);
  print(std::string_view(text));
}

void Evaluator::start(const std::vector<Load>& loads) {
  for (const Load& load : loads) {
    Value value;
    if (load.from == Load::From::Outer) value = slot(load.outer);
    if (load.from == Load::From::Context) value = context_.resolve(load.name);
    current_->slots[load.slot] = std::move(value);
  }
}

void Evaluator::assign(const Target& target, const Value& value, bool exported) {
  switch (target.kind) {
    case Target::Kind::Name:
      slot(target.variable) = value;
      if (exported) context_.set(target.name, value);
      return;
    case Target::Kind::NamespaceAttribute: {
      const Value& object = slot(target.variable);
      if (!object.is(Kind::Namespace)) fail_runtime("cannot assign attribute on non-namespace object");
      if (target.attribute.starts_with('_'))
        fail_runtime("namespaces take no attributes that start with an underscore, got '" + target.attribute +
                     "'");
      object.as<Namespace>().set(target.attribute, value);
      return;
    }
    case Target::Kind::Tuple: {
      const std::vector<Value> values = unpacked(context_, value, target.items.size());
      for (std::size_t i = 0; i < values.size(); ++i) assign(target.items[i], values[i], exported);
    }
  }
}

// Runs a block with its output going into `text`.
Evaluator::Flow Evaluator::captured(const Block& block, std::string& text) {
  std::string* const before = std::exchange(out_, &text);
  const Flow flow = run(block);
  out_ = before;
  return flow;
}

Evaluator::Flow Evaluator::run(const Block& block) {
  const Depth depth(context_);
  for (const auto& statement : block) {
    const Flow flow = run(*statement);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  context_.step();
  context_.at = statement.at;
  switch (statement.kind) {
    case StatementKind::Output: {
      const auto& output = static_cast<const OutputStatement&>(statement);
      if (!output.expression) {
        print(std::string_view(output.text));
      } else {
        print(evaluate(*output.expression));
      }
      return Flow::Normal;
    }
    case StatementKind::Set: {
      const auto& set = static_cast<const SetStatement&>(statement);
      const Value value = evaluate(*set.value);
      context_.at = statement.at;
      assign(set.target, value, set.exported);
      return Flow::Normal;
    }
    case StatementKind::SetBlock:
      return run_set_block(static_cast<const SetBlockStatement&>(statement));
    case StatementKind::If:
      return run_if(static_cast<const IfStatement&>(statement));
    case StatementKind::For:
      return run_for(static_cast<const ForStatement&>(statement));
    case StatementKind::Macro: {
      const auto& node = static_cast<const MacroStatement&>(statement);
      auto macro = std::make_shared<Macro>();
      macro->name = node.name;
      macro->body = &node.macro;
      macro->outer = current_;
      current_->captured = true;
      const Value value = Value::object(Kind::Macro, std::move(macro));
      slot(node.variable) = value;
      if (node.exported) context_.set(node.name, value);
      return Flow::Normal;
    }
    case StatementKind::CallBlock:
    case StatementKind::Generation:
      run_call_block(static_cast<const CallBlockStatement&>(statement));
      return Flow::Normal;
    case StatementKind::FilterBlock:
      return run_filter_block(static_cast<const FilterBlockStatement&>(statement));
    case StatementKind::With:
      return run_with(static_cast<const WithStatement&>(statement));
    case StatementKind::Break:
      return Flow::Break;
    case StatementKind::Continue:
      return Flow::Continue;
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run_if(const IfStatement& branch) {
  for (const auto& [condition, body] : branch.branches)
    if (is_true(evaluate(*condition))) return run(body);
  return run(branch.otherwise);
}

// The next item that passes the loop's filter.
bool Evaluator::next_item(const ForStatement& loop, Cursor& cursor, bool& started, Value& item) {
  if (!loop.test) return cursor.next(item);
  if (!std::exchange(started, true)) start(loop.test_loads);
  while (cursor.next(item)) {
    context_.step();
    assign(loop.test_target, item, false);
    if (is_true(evaluate(*loop.test))) return true;
  }
  return false;
}

Evaluator::Flow Evaluator::run_for(const ForStatement& loop) {
  const Value iterable = evaluate(*loop.iterable);
  context_.at = loop.at;
  Cursor cursor(iterable);
  bool test_started = false;
  // Read ahead (loop.last, loop.nextitem) can happen inside a macro or further loop that was handed
  // `loop`; the filter then still runs in this activation.
  Activation* const home = current_;
  const auto pull = [&](Value& item) {
    Activation* const calling = std::exchange(current_, home);
    const bool found = next_item(loop, cursor, test_started, item);
    current_ = calling;
    return found;
  };
  std::shared_ptr<Loop> info;
  if (loop.has_loop) {
    info = std::make_shared<Loop>();
    info->pull = pull;
    info->known_length = countable_length(iterable, loop.test != nullptr);
  }
  Flow result = Flow::Normal;
  bool completed_a_round = false;
  Value item;
  while (info ? info->advance(item) : pull(item)) {
    context_.step();
    context_.at = loop.at;
    assign(loop.target, item, false);
    if (info) current_->slots[loop.loop_slot] = Value::object(Kind::Loop, info);
    start(loop.body_loads);
    const Flow flow = run(loop.body);
    if (flow == Flow::Break) break;
    // As in Jinja, a round left by `continue` does not keep the else branch away.
    if (flow == Flow::Normal) completed_a_round = true;
  }
  if (info) *info = Loop();
  if (!completed_a_round && !loop.otherwise.empty()) {
    start(loop.otherwise_loads);
    result = run(loop.otherwise);
  }
  return result;
}

Evaluator::Flow Evaluator::run_set_block(const SetBlockStatement& set) {
  start(set.loads);
  std::string text;
  const Flow flow = captured(set.body, text);
  if (flow != Flow::Normal) return flow;
  context_.at = set.at;
  Value value = context_.text(std::move(text));
  if (set.filter) {
    Value outer = std::exchange(block_input_, value);
    value = apply_filter(*set.filter);
    block_input_ = std::move(outer);
  }
  assign(set.target, value, set.exported);
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run_filter_block(const FilterBlockStatement& filter) {
  start(filter.loads);
  std::string text;
  const Flow flow = captured(filter.body, text);
  if (flow != Flow::Normal) return flow;
  Value outer = std::exchange(block_input_, context_.text(std::move(text)));
  const Value value = apply_filter(*filter.filter);
  block_input_ = std::move(outer);
  print(value);
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run_with(const WithStatement& with) {
  start(with.loads);
  for (std::size_t i = 0; i < with.targets.size(); ++i)
    assign(with.targets[i], evaluate(*with.values[i]), false);
  return run(with.body);
}

void Evaluator::run_call_block(const CallBlockStatement& node) {
  auto macro = std::make_shared<Macro>();
  macro->name = "caller";
  macro->body = &node.caller;
  macro->outer = current_;
  if (node.kind == StatementKind::Generation) {
    Arguments none;
    print(call_macro(*macro, none));
    return;
  }
  current_->captured = true;
  const Value caller = Value::object(Kind::Macro, std::move(macro));
  print(call(*node.call, &caller));
}

}  // namespace tandem::text::jinja
