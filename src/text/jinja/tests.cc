// The tests of `is`.

#include <map>

#include "text/jinja/operations.h"
#include "text/jinja/registry.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

template <bool (*Is)(const Value&)>
bool plain(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("test", given, {}, 0);
  return Is(input);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::Bool); }
bool is_false(const Value& v) { return v.is(Kind::Bool) && !v.as_bool(); }
bool is_true_constant(const Value& v) { return v.is(Kind::Bool) && v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::Int) || v.is(Kind::BigInt); }
bool is_float(const Value& v) { return v.is(Kind::Float); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::Dict); }
bool is_escaped(const Value& v) { return v.is_markup(); }
bool is_sequence(const Value& v) {
  switch (v.kind()) {
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
      return true;
    // len() of Undefined works and so does looking for its __getitem__.
    case Kind::Undefined:
      return true;
    default:
      return false;
  }
}
bool is_callable(const Value& v) {
  switch (v.kind()) {
    // Python asks the type, and Undefined's has __call__.
    case Kind::Undefined:
    case Kind::Macro:
    case Kind::Function:
    case Kind::Method:
    case Kind::Loop:
    case Kind::Joiner:
      return true;
    default:
      return false;
  }
}

Value remainder(const Value& input, const Value& by) {
  if (input.is_undefined()) fail_runtime(input.why_undefined());
  if (!input.is_number() || !by.is_number()) fail_runtime("the test needs numbers");
  return number_operation(Operator::Modulo, input, by);
}
bool is_odd(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("odd", given, {}, 0);
  return equal(remainder(input, Value::integer(2)), Value::integer(1));
}
bool is_even(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("even", given, {}, 0);
  return equal(remainder(input, Value::integer(2)), Value::integer(0));
}
bool is_divisible(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("divisibleby", given, {"num"}, 1);
  return equal(remainder(input, a[0]), Value::integer(0));
}

template <bool Lower>
bool is_case(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("test", given, {}, 0);
  const Value text = Value::string(to_text(input));
  Arguments none;
  return find_string_method(Lower ? "islower" : "isupper")->call(context, text, none).as_bool();
}

bool is_filter_name(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("filter", given, {}, 0);
  (void)hash_of(input);  // what cannot be a key is an error
  return input.is_string() &&
         (find_filter(input.as_string()) != nullptr || is_unsupported_filter(input.as_string()));
}
bool is_test_name(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("test", given, {}, 0);
  (void)hash_of(input);
  return input.is_string() && find_test(input.as_string()) != nullptr;
}

bool is_same(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("sameas", given, {"other"}, 1);
  const Value& other = a[0];
  if (input.kind() != other.kind()) return false;
  switch (input.kind()) {
    case Kind::None:
      return true;
    case Kind::Bool:
      return input.as_bool() == other.as_bool();
    // Python keeps one object for each small integer.
    case Kind::Int:
      return input.as_int() == other.as_int() && input.as_int() >= -5 && input.as_int() <= 256;
    default:
      return input.identity() != nullptr && input.identity() == other.identity();
  }
}

bool is_in(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("in", given, {"seq"}, 1);
  return contains(context, a[0], input);
}
bool is_equal(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("eq", given, {"other"}, 1);
  return equal(input, a[0]);
}
bool is_not_equal(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("ne", given, {"other"}, 1);
  return !equal(input, a[0]);
}
template <Order order>
bool is_ordered(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("comparison", given, {"other"}, 1);
  return ordered(input, order, a[0]);
}

}  // namespace

const NativeTest* find_test(std::string_view name) {
  static const std::map<std::string_view, NativeTest> kTests = {
      {"!=", {is_not_equal}},
      {"<", {is_ordered<Order::Less>}},
      {"<=", {is_ordered<Order::LessEqual>}},
      {"==", {is_equal}},
      {">", {is_ordered<Order::Greater>}},
      {">=", {is_ordered<Order::GreaterEqual>}},
      {"boolean", {plain<is_boolean>}},
      {"callable", {plain<is_callable>}},
      {"defined", {plain<is_defined>}},
      {"divisibleby", {is_divisible}},
      {"eq", {is_equal}},
      {"equalto", {is_equal}},
      {"escaped", {plain<is_escaped>}},
      {"even", {is_even}},
      {"false", {plain<is_false>}},
      {"filter", {is_filter_name}},
      {"float", {plain<is_float>}},
      {"ge", {is_ordered<Order::GreaterEqual>}},
      {"greaterthan", {is_ordered<Order::Greater>}},
      {"gt", {is_ordered<Order::Greater>}},
      {"in", {is_in}},
      {"integer", {plain<is_integer>}},
      {"iterable", {plain<is_iterable>}},
      {"le", {is_ordered<Order::LessEqual>}},
      {"lessthan", {is_ordered<Order::Less>}},
      {"lower", {is_case<true>}},
      {"lt", {is_ordered<Order::Less>}},
      {"mapping", {plain<is_mapping>}},
      {"ne", {is_not_equal}},
      {"none", {plain<is_none>}},
      {"number", {plain<is_number>}},
      {"odd", {is_odd}},
      {"sameas", {is_same}},
      {"sequence", {plain<is_sequence>}},
      {"string", {plain<is_string>}},
      {"test", {is_test_name}},
      {"true", {plain<is_true_constant>}},
      {"undefined", {plain<is_undefined>}},
      {"upper", {is_case<false>}},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : &found->second;
}

}  // namespace tandem::text::jinja
