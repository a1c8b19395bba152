// The table of filters, what they share, and the ones about single values.

#include "text/jinja/filters.h"

#include <cmath>

#include <algorithm>
#include <map>

#include "text/jinja/unicode.h"

namespace tandem::text::jinja {

std::int64_t whole(const Value& v, std::int64_t fallback) {
  if (v.is_missing()) return fallback;
  if (v.is_undefined()) fail_runtime(v.why_undefined());
  if (!v.is_integer())
    fail_runtime("'" + std::string(type_name(v)) + "' object cannot be interpreted as an integer");
  return v.as_int();
}

std::string text_of(const Value& v) { return to_text(v); }

AttributePath attribute_path(const Value& attribute) {
  AttributePath out;
  if (attribute.is_missing() || attribute.is_none()) return out;
  if (!attribute.is_string()) {
    out.push_back(attribute);
    return out;
  }
  std::string_view rest = attribute.as_string();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == kNoPosition;
    const Value number = is_number ? parse_int(part, 10) : Value();
    out.push_back(number.is_missing() ? Value::string(std::string(part)) : number);
    if (dot == kNoPosition) return out;
    rest.remove_prefix(dot + 1);
  }
}

Value follow(Context& context, Value item, const AttributePath& path) {
  for (const Value& part : path) {
    context.step();
    item = get_item(context, item, part);
  }
  return item;
}

Value without_case(Context& context, const Value& v) {
  return v.is_string() ? context.text(to_lower(v.as_string()), v.is_markup()) : v;
}

namespace {

Value f_default(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("default", given, {"default_value", "boolean"}, 0);
  if (input.is_undefined() || (flag(a[1]) && !is_true(input)))
    return a[0].is_missing() ? Value::string("") : a[0];
  return input;
}

Value f_abs(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("abs", given, {}, 0);
  if (input.is_undefined()) fail_runtime(input.why_undefined());
  if (!input.is_number()) fail_runtime("bad operand type for abs(): '" + std::string(type_name(input)) + "'");
  if (input.is(Kind::Float)) return Value::real(std::fabs(input.as_float()));
  if (input.is(Kind::Bool)) return Value::integer(input.as_int());
  return compare_numbers(input, Value::integer(0)) < 0 ? negate(input) : input;
}

Value f_attr(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("attr", given, {"name"}, 1);
  if (!a[0].is_string()) fail_runtime("the filter 'attr' takes the name of an attribute");
  // Attributes only, no data: what a dict holds is not found.
  if (input.is_undefined()) fail_runtime(input.why_undefined());
  if (input.is(Kind::Dict)) {
    std::string_view interned;
    if (find_method(input, a[0].as_string(), interned) == nullptr)
      return Value::undefined("'" + described(input) + "' has no attribute '" + a[0].as_string() + "'");
  }
  return get_attribute(context, input, a[0].as_string());
}

Value f_int(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("int", given, {"default", "base"}, 0);
  const Value fallback = a[0].is_missing() ? Value::integer(0) : a[0];
  const std::int64_t base = whole(a[1], 10);
  switch (input.kind()) {
    case Kind::Undefined:
      fail_runtime(input.why_undefined());
    case Kind::Bool:
      return Value::integer(input.as_int());
    case Kind::Int:
    case Kind::BigInt:
      return input;
    case Kind::Float:
      if (std::isnan(input.as_float())) return fallback;
      if (std::isinf(input.as_float())) fail_runtime("cannot convert float infinity to integer");
      return truncate(input.as_float());
    case Kind::String: {
      if (base == 0 || (base >= 2 && base <= 36)) {
        const Value i = parse_int(input.as_string(), static_cast<int>(base));
        if (!i.is_missing()) return i;
      }
      const Value d = parse_float(input.as_string());
      if (d.is_missing() || !std::isfinite(d.as_float())) return fallback;
      return truncate(d.as_float());
    }
    default:
      return fallback;
  }
}

Value f_float(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("float", given, {"default"}, 0);
  const Value fallback = a[0].is_missing() ? Value::real(0) : a[0];
  if (input.is_undefined()) fail_runtime(input.why_undefined());
  if (input.is_number()) {
    const double d = to_double(input);
    if (input.is(Kind::BigInt) && std::isinf(d)) fail_runtime("int too large to convert to float");
    return Value::real(d);
  }
  if (!input.is_string()) return fallback;
  const Value d = parse_float(input.as_string());
  return d.is_missing() ? fallback : d;
}

// round() to nearest, ties to even on the exact decimal value, as printing with that many digits does.
double round_to(double d, std::int64_t digits) {
  if (!std::isfinite(d)) return d;
  if (digits > 300) return d;
  if (digits < -320) return std::copysign(0.0, d);
  if (digits >= 0) return std::strtod(fixed_text(d, static_cast<int>(digits)).c_str(), nullptr);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / scale) * scale;
}

Value round_int(const Value& value, std::int64_t digits) {
  if (digits >= 0) return value.is(Kind::Bool) ? Value::integer(value.as_int()) : value;
  if (digits < -5000) return Value::integer(0);
  const Big scale = boost::multiprecision::pow(Big(10), static_cast<unsigned>(-digits));
  Big number = to_big(value);
  const bool negative = number < 0;
  if (negative) number = -number;
  Big quotient = number / scale;
  const Big twice = (number - quotient * scale) * 2;
  if (twice > scale || (twice == scale && quotient % 2 == 1)) quotient += 1;
  Big out = quotient * scale;
  if (negative) out = -out;
  return from_big(std::move(out));
}

Value f_round(Context&, const Value& input, Arguments& given) {
  const auto a = bind_arguments("round", given, {"precision", "method"}, 0);
  const std::string method = a[1].is_missing() ? "common" : text_of(a[1]);
  if (method != "common" && method != "ceil" && method != "floor")
    fail_runtime("method must be common, ceil or floor");
  if (input.is_undefined()) fail_runtime(input.why_undefined());
  if (!input.is_number())
    fail_runtime("type " + std::string(type_name(input)) + " doesn't define __round__ method");
  if (method == "common") {
    const std::int64_t digits = a[0].is_none() ? 0 : whole(a[0], 0);
    if (!input.is(Kind::Float)) return round_int(input, digits);
    if (a[0].is_none()) return truncate(std::nearbyint(input.as_float()));
    const double rounded = round_to(input.as_float(), digits);
    if (std::isinf(rounded) && std::isfinite(input.as_float()))
      fail_runtime("rounded value too large to represent");
    return Value::real(rounded);
  }
  const Value digits = a[0].is_missing() ? Value::integer(0) : a[0];
  if (!digits.is_number()) fail_runtime("unsupported operand type(s) for ** or pow()");
  const Value scale = number_operation(Operator::Power, Value::integer(10), digits);
  const Value scaled = number_operation(Operator::Multiply, input, scale);
  Value rounded = scaled;
  if (scaled.is(Kind::Float))
    rounded = truncate(method == "ceil" ? std::ceil(scaled.as_float()) : std::floor(scaled.as_float()));
  return number_operation(Operator::Divide, rounded, scale);
}

Value f_tojson(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ascii_only = flag(a[0]);
  style.sort_keys = flag(a[3]);
  if (!a[1].is_missing() && !a[1].is_none()) {
    if (a[1].is_string()) {
      style.indent = a[1].as_string();
    } else {
      const std::int64_t width = whole(a[1], 0);
      if (width > 1000) fail_limit("tojson indents by more than 1000 blanks");
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (!a[2].is_missing() && !a[2].is_none()) {
    const std::vector<Value> both = to_items(context, a[2]);
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string())
      fail_runtime("separators must be two strings");
    style.item_separator = both[0].as_string();
    style.key_separator = both[1].as_string();
  }
  std::string text = to_json(context, input, style);
  return Value::string(std::move(text));
}

Value f_length(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("length", given, {}, 0);
  const std::int64_t n = length_of(input);
  if (n < 0) fail_runtime("object of type '" + std::string(type_name(input)) + "' has no len()");
  return Value::integer(n);
}

Value f_string(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("string", given, {}, 0);
  if (input.is_string()) return input;
  return context.text(text_of(input));
}

// The names Jinja has besides ours, refused when the template is read.
constexpr std::string_view kUnsupported[] = {"filesizeformat", "pprint",   "random", "striptags",
                                             "urlize",         "wordwrap", "xmlattr"};

}  // namespace

const std::vector<NamedFilter>& value_filters() {
  static const std::vector<NamedFilter> kFilters = {
      {"abs", {f_abs}},         {"attr", {f_attr}},     {"count", {f_length}},  {"d", {f_default}},
      {"default", {f_default}}, {"float", {f_float}},   {"int", {f_int}},       {"length", {f_length}},
      {"round", {f_round}},     {"string", {f_string}}, {"tojson", {f_tojson}},
  };
  return kFilters;
}

const NativeFilter* find_filter(std::string_view name) {
  static const std::map<std::string_view, NativeFilter> kAll = [] {
    std::map<std::string_view, NativeFilter> all;
    for (const auto* group : {&value_filters(), &text_filters(), &sequence_filters()})
      for (const NamedFilter& f : *group) all.emplace(f.name, f.filter);
    return all;
  }();
  const auto found = kAll.find(name);
  return found == kAll.end() ? nullptr : &found->second;
}

bool is_unsupported_filter(std::string_view name) {
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
}

}  // namespace tandem::text::jinja
