// Expressions and calls. The statements are in evaluator_statement.cc.

#include "text/jinja/evaluator.h"

#include "text/jinja/operations.h"

namespace tandem::text::jinja {
namespace {

bool holds(Context& context, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::Equal:
      return equal(a, b);
    case Comparison::NotEqual:
      return !equal(a, b);
    case Comparison::Less:
      return ordered(a, Order::Less, b);
    case Comparison::LessEqual:
      return ordered(a, Order::LessEqual, b);
    case Comparison::Greater:
      return ordered(a, Order::Greater, b);
    case Comparison::GreaterEqual:
      return ordered(a, Order::GreaterEqual, b);
    case Comparison::In:
      return contains(context, b, a);
    case Comparison::NotIn:
      return !contains(context, b, a);
  }
  return false;
}

Value take_named(Arguments& arguments, std::string_view name) {
  for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    arguments.named.erase(it);
    return value;
  }
  return {};
}

}  // namespace

void Evaluator::Depth::fail_too_deep(Context& context) {
  fail_limit("the template evaluates deeper than " + std::to_string(context.limits().max_depth) + " levels");
}

std::string Evaluator::render(const TemplateTree& tree) {
  std::string out;
  out_ = &out;
  current_ = &activate(tree.slots, nullptr);
  current_->captured = true;
  start(tree.loads);
  (void)run(tree.body);
  return out;
}

Activation& Evaluator::activate(std::uint32_t slots, Activation* outer) {
  context_.spend_items(slots);
  auto activation = std::make_unique<Activation>();
  activation->outer = outer;
  activation->slots.resize(slots);
  activations_.push_back(std::move(activation));
  return *activations_.back();
}

// Calls end in reverse order, so an activation nobody captured is the last one, but for captured ones
// that were made inside it.
void Evaluator::leave(Activation& activation) {
  if (!activation.captured && activations_.back().get() == &activation) activations_.pop_back();
}

Value& Evaluator::slot(Variable variable) {
  Activation* activation = current_;
  for (std::uint32_t i = 0; i < variable.hops; ++i) activation = activation->outer;
  return activation->slots[variable.slot];
}

Value Evaluator::evaluate(const Expression& node) {
  const Depth depth(context_);
  context_.step();
  context_.at = node.at;
  return evaluate_node(node);
}

Value Evaluator::evaluate_node(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::Constant:
      return static_cast<const ConstantExpression&>(node).value;
    case ExpressionKind::Name: {
      const auto& name = static_cast<const NameExpression&>(node);
      const Value& value = slot(name.variable);
      if (value.is_missing()) return Value::undefined("'" + name.name + "' is undefined");
      return value;
    }
    case ExpressionKind::Attribute: {
      const auto& attribute = static_cast<const AttributeExpression&>(node);
      const Value object = evaluate(*attribute.object);
      context_.at = node.at;
      return get_attribute(context_, object, attribute.name);
    }
    case ExpressionKind::Item: {
      const auto& item = static_cast<const OperandsExpression&>(node);
      const Value object = evaluate(*item.operands[0]);
      const Value key = evaluate(*item.operands[1]);
      context_.at = node.at;
      return get_item(context_, object, key);
    }
    case ExpressionKind::Slice:
      return slice(static_cast<const OperandsExpression&>(node));
    case ExpressionKind::Tuple:
    case ExpressionKind::List:
      return make_sequence(static_cast<const OperandsExpression&>(node));
    case ExpressionKind::Dict:
      return make_mapping(static_cast<const OperandsExpression&>(node));
    case ExpressionKind::Call:
      return call(static_cast<const CallExpression&>(node), nullptr);
    case ExpressionKind::Filter:
      return apply_filter(static_cast<const FilterExpression&>(node));
    case ExpressionKind::Test:
      return apply_test(static_cast<const TestExpression&>(node));
    case ExpressionKind::Conditional:
      return conditional(static_cast<const OperandsExpression&>(node));
    case ExpressionKind::And:
    case ExpressionKind::Or: {
      const auto& logic = static_cast<const OperandsExpression&>(node);
      Value left = evaluate(*logic.operands[0]);
      if (is_true(left) == (node.kind == ExpressionKind::Or)) return left;
      return evaluate(*logic.operands[1]);
    }
    case ExpressionKind::Not:
      return Value::boolean(!is_true(evaluate(*static_cast<const OperandsExpression&>(node).operands[0])));
    case ExpressionKind::Negative:
    case ExpressionKind::Positive: {
      const Value value = evaluate(*static_cast<const OperandsExpression&>(node).operands[0]);
      context_.at = node.at;
      const bool negative = node.kind == ExpressionKind::Negative;
      if (value.is_undefined()) fail_runtime(value.why_undefined());
      if (!value.is_number())
        fail_runtime(std::string("bad operand type for unary ") + (negative ? "-" : "+") + ": '" +
                     std::string(type_name(value)) + "'");
      if (negative) return negate(value);
      return value.is(Kind::Bool) ? Value::integer(value.as_int()) : value;
    }
    case ExpressionKind::Binary: {
      const auto& binary = static_cast<const BinaryExpression&>(node);
      const Value left = evaluate(*binary.left);
      const Value right = evaluate(*binary.right);
      context_.at = node.at;
      return binary_operation(context_, binary.op, left, right);
    }
    case ExpressionKind::Compare:
      return compare(static_cast<const CompareExpression&>(node));
    case ExpressionKind::Concat:
      return concatenate(static_cast<const OperandsExpression&>(node));
  }
  fail_runtime("unknown expression");
}

Value Evaluator::conditional(const OperandsExpression& node) {
  if (is_true(evaluate(*node.operands[0]))) return evaluate(*node.operands[1]);
  if (node.operands[2]) return evaluate(*node.operands[2]);
  return Value::undefined("the inline if-expression on line " + std::to_string(node.at.line) +
                          " evaluated to false and no else section was defined.");
}

Value Evaluator::compare(const CompareExpression& node) {
  Value left = evaluate(*node.first);
  for (const auto& [comparison, operand] : node.rest) {
    Value right = evaluate(*operand);
    context_.at = node.at;
    if (!holds(context_, comparison, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::concatenate(const OperandsExpression& node) {
  std::vector<Value> values;
  values.reserve(node.operands.size());
  for (const auto& operand : node.operands) values.push_back(evaluate(*operand));
  std::string text;
  for (const Value& value : values) append_text(text, value);
  return context_.text(std::move(text));
}

Value Evaluator::make_sequence(const OperandsExpression& node) {
  context_.spend_items(node.operands.size());
  std::vector<Value> items;
  items.reserve(node.operands.size());
  for (const auto& operand : node.operands) items.push_back(evaluate(*operand));
  return node.kind == ExpressionKind::List ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Evaluator::make_mapping(const OperandsExpression& node) {
  context_.spend_items(node.operands.size());
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    Value key = evaluate(*node.operands[i]);
    Value value = evaluate(*node.operands[i + 1]);
    context_.at = node.at;
    dict->set(std::move(key), std::move(value));
  }
  return make_dict(std::move(dict));
}

Value Evaluator::slice(const OperandsExpression& node) {
  const Value object = evaluate(*node.operands[0]);
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i)
    if (node.operands[i + 1]) parts[i] = evaluate(*node.operands[i + 1]);
  context_.at = node.at;
  return get_slice(context_, object, parts[0], parts[1], parts[2]);
}

Value Evaluator::apply_filter(const FilterExpression& node) {
  const Value input = node.input ? evaluate(*node.input) : block_input_;
  Arguments given = arguments(node.arguments);
  context_.at = node.at;
  if (node.filter == nullptr) fail_runtime("No filter named '" + node.name + "' found.");
  return node.filter->apply(context_, input, given);
}

Value Evaluator::apply_test(const TestExpression& node) {
  const Value input = evaluate(*node.input);
  Arguments given = arguments(node.arguments);
  context_.at = node.at;
  if (node.test == nullptr) fail_runtime("No test named '" + node.name + "' found.");
  return Value::boolean(node.test->apply(context_, input, given));
}

Arguments Evaluator::arguments(const CallArguments& node) {
  Arguments out;
  out.positional.reserve(node.positional.size());
  for (const auto& value : node.positional) out.positional.push_back(evaluate(*value));
  for (const auto& [name, value] : node.named) out.named.emplace_back(name, evaluate(*value));
  if (node.star) {
    for (Value& value : to_items(context_, evaluate(*node.star))) out.positional.push_back(std::move(value));
  }
  if (node.star_star) {
    const Value more = evaluate(*node.star_star);
    if (!more.is(Kind::Dict))
      fail_runtime("argument after ** must be a mapping, not " + std::string(type_name(more)));
    for (const auto& [key, value] : more.as<Dict>().entries) {
      if (!key.is_string()) fail_runtime("keywords must be strings");
      for (const auto& [name, other] : out.named)
        if (name == key.as_string()) fail_runtime("got multiple values for keyword argument '" + name + "'");
      out.named.emplace_back(key.as_string(), value);
    }
  }
  return out;
}

Value Evaluator::call(const CallExpression& node, const Value* caller) {
  const Value callee = evaluate(*node.callee);
  Arguments given = arguments(node.arguments);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  context_.at = node.at;
  return call_value(callee, given);
}

Value Evaluator::call_value(const Value& callee, Arguments& given) {
  switch (callee.kind()) {
    case Kind::Undefined:
      fail_runtime(callee.why_undefined());
    case Kind::Macro:
      return call_macro(callee.as<Macro>(), given);
    case Kind::Function:
      return callee.as<Function>().call(context_, given);
    case Kind::Method: {
      const Method& method = callee.as<Method>();
      if (method.call == nullptr)
        fail_runtime("the method '" + std::string(method.name) + "' of '" +
                     std::string(type_name(method.self)) + "' is not supported in chat templates");
      return method.call(context_, method.self, given);
    }
    case Kind::Joiner: {
      (void)bind_arguments("joiner", given, {}, 0);
      Joiner& joiner = callee.as<Joiner>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::string("");
    }
    case Kind::Loop:
      fail_runtime("recursive loops are not supported");
    default:
      fail_runtime("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

Value Evaluator::call_macro(const Macro& macro, Arguments& given) {
  const Depth depth(context_);
  const MacroBody& body = *macro.body;
  const std::size_t count = body.parameters.size();
  Activation& activation = activate(body.slots, macro.outer);
  bool explicit_caller = false;
  for (std::size_t i = 0; i < count; ++i) {
    Value& slot = activation.slots[body.parameter_slots[i]];
    explicit_caller |= body.parameters[i] == "caller";
    slot = i < given.positional.size() ? given.positional[i] : take_named(given, body.parameters[i]);
  }
  if (body.uses_caller && !explicit_caller) {
    Value caller = take_named(given, "caller");
    if (caller.is_missing() || caller.is_none()) caller = Value::undefined("No caller defined");
    activation.slots[body.caller_slot] = std::move(caller);
  }
  if (body.uses_kwargs) {
    auto rest = std::make_shared<Dict>();
    for (auto& [name, value] : given.named) rest->set(Value::string(name), value);
    activation.slots[body.kwargs_slot] = make_dict(std::move(rest));
  } else if (!given.named.empty()) {
    fail_runtime("macro '" + macro.name + "' takes no keyword argument '" + given.named.front().first + "'");
  }
  if (body.uses_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = count; i < given.positional.size(); ++i) rest.push_back(given.positional[i]);
    activation.slots[body.varargs_slot] = Value::tuple(std::move(rest));
  } else if (given.positional.size() > count) {
    fail_runtime("macro '" + macro.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }

  Activation* const calling = std::exchange(current_, &activation);
  start(body.loads);
  const std::size_t first_default = count - body.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!activation.slots[body.parameter_slots[i]].is_missing()) continue;
    Value value = i >= first_default
                      ? evaluate(*body.defaults[i - first_default])
                      : Value::undefined("parameter '" + body.parameters[i] + "' was not provided");
    activation.slots[body.parameter_slots[i]] = std::move(value);
  }
  std::string text;
  (void)captured(body.body, text);
  current_ = calling;
  leave(activation);
  return context_.text(std::move(text));
}

}  // namespace tandem::text::jinja
