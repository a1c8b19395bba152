// Binary operators and slices.

#include "text/jinja/operations.h"

#include <algorithm>
#include <limits>

#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

constexpr std::size_t kHuge = std::size_t{1} << 40;

std::string_view sign(Operator op) {
  switch (op) {
    case Operator::Add:
      return "+";
    case Operator::Subtract:
      return "-";
    case Operator::Multiply:
      return "*";
    case Operator::Divide:
      return "/";
    case Operator::FloorDivide:
      return "//";
    case Operator::Modulo:
      return "%";
    case Operator::Power:
      return "** or pow()";
  }
  return "?";
}

[[noreturn]] void fail_types(Operator op, const Value& a, const Value& b) {
  fail_runtime("unsupported operand type(s) for " + std::string(sign(op)) + ": '" +
               std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

Value repeat(Context& context, const Value& value, const Value& times) {
  if (times.is(Kind::BigInt)) fail_runtime("cannot fit 'int' into an index-sized integer");
  const std::size_t count =
      times.is_integer() ? static_cast<std::size_t>(std::max<std::int64_t>(times.as_int(), 0)) : kHuge;
  if (value.is_string()) {
    const std::string& text = value.as_string();
    if (count > kHuge || text.size() > kHuge) context.spend(std::numeric_limits<std::uint32_t>::max());
    if (text.empty()) return value;
    context.spend(std::min(count, kHuge) > kHuge / text.size() ? kHuge : count * text.size());
    std::string out;
    out.reserve(count * text.size());
    for (std::size_t i = 0; i < count; ++i) out += text;
    return Value::string(std::move(out), value.is_markup());
  }
  const auto& items = value.items();
  std::vector<Value> out;
  if (!items.empty()) {
    context.spend_items(std::min(count, kHuge) > kHuge / items.size() ? kHuge : count * items.size());
    out.reserve(count * items.size());
    for (std::size_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return value.is(Kind::List) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

// A bound of a slice, clamped like Python's: Missing and None mean the default.
std::int64_t slice_bound(const Value& bound, std::int64_t fallback, std::int64_t size, std::int64_t lowest,
                         std::int64_t highest) {
  if (bound.is_missing() || bound.is_none()) return fallback;
  if (bound.is(Kind::BigInt)) return to_double(bound) < 0 ? lowest : highest;
  if (!bound.is_integer()) fail_runtime("slice indices must be integers or None or have an __index__ method");
  std::int64_t i = bound.as_int();
  if (i < 0) i = i < -size ? std::numeric_limits<std::int64_t>::min() : i + size;
  return std::clamp(i, lowest, highest);
}

struct SliceRange {
  std::int64_t start, step, count;
};

SliceRange slice_range(std::int64_t size, const Value& start, const Value& stop, const Value& step_value) {
  std::int64_t step = 1;
  if (step_value.is(Kind::BigInt)) {
    step = to_double(step_value) < 0 ? std::numeric_limits<std::int32_t>::min()
                                     : std::numeric_limits<std::int32_t>::max();
  } else if (!step_value.is_missing() && !step_value.is_none()) {
    if (!step_value.is_integer())
      fail_runtime("slice indices must be integers or None or have an __index__ method");
    // Any longer step does the same on what fits in memory.
    step = std::clamp<std::int64_t>(step_value.as_int(), std::numeric_limits<std::int32_t>::min(),
                                    std::numeric_limits<std::int32_t>::max());
  }
  if (step == 0) fail_runtime("slice step cannot be zero");
  const bool forward = step > 0;
  const std::int64_t lowest = forward ? 0 : -1;
  const std::int64_t highest = forward ? size : size - 1;
  const std::int64_t from = slice_bound(start, forward ? 0 : size - 1, size, lowest, highest);
  const std::int64_t to = slice_bound(stop, forward ? size : -1, size, lowest, highest);
  std::int64_t count = 0;
  if (forward && from < to) count = (to - from - 1) / step + 1;
  if (!forward && from > to) count = (from - to - 1) / -step + 1;
  return {from, step, count};
}

Value slice_string(Context& context, const Value& value, const SliceRange& range) {
  const std::string& text = value.as_string();
  context.spend(text.size());
  if (range.step == 1) {
    const std::size_t from = byte_offset(text, static_cast<std::size_t>(range.start));
    const std::size_t bytes =
        byte_offset(std::string_view(text).substr(from), static_cast<std::size_t>(range.count));
    return Value::string(text.substr(from, bytes), value.is_markup());
  }
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size();) {
    starts.push_back(at);
    (void)next_code_point(text, at);
  }
  starts.push_back(text.size());
  std::string out;
  std::int64_t i = range.start;
  for (std::int64_t n = 0; n < range.count; ++n, i += range.step) {
    const auto k = static_cast<std::size_t>(i);
    out.append(text, starts[k], starts[k + 1] - starts[k]);
  }
  return Value::string(std::move(out), value.is_markup());
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value add(Context& context, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    context.spend(a.as_string().size() + b.as_string().size());
    if (a.is_markup() == b.is_markup()) return Value::string(a.as_string() + b.as_string(), a.is_markup());
    // Text that `safe` has marked escapes what it is joined with.
    if (a.is_markup()) return context.text(a.as_string() + html_escaped(b.as_string()), true);
    return context.text(html_escaped(a.as_string()) + b.as_string(), true);
  }
  if (a.is_number() && b.is_number()) return number_operation(Operator::Add, a, b);
  if (a.is_sequence() && a.kind() == b.kind()) {
    context.spend_items(a.items().size() + b.items().size());
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::List) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (a.is_string() && !b.is_undefined())
    fail_runtime("can only concatenate str (not \"" + std::string(type_name(b)) + "\") to str");
  if (a.is_undefined()) fail_runtime(a.why_undefined());
  if (b.is_undefined()) fail_runtime(b.why_undefined());
  fail_types(Operator::Add, a, b);
}

Value binary_operation(Context& context, Operator op, const Value& a, const Value& b) {
  if (op == Operator::Add) return add(context, a, b);
  if (op == Operator::Modulo && a.is_string()) {
    return context.text(percent_format(context, a.as_string(), b, a.is_markup()), a.is_markup());
  }
  if (a.is_undefined()) fail_runtime(a.why_undefined());
  if (b.is_undefined()) fail_runtime(b.why_undefined());
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::BigInt) || b.is(Kind::BigInt)) context.spend(kMaxIntBits / 8);
    return number_operation(op, a, b);
  }
  if (op == Operator::Multiply) {
    const bool a_repeats = a.is_string() || a.is_sequence();
    const bool b_repeats = b.is_string() || b.is_sequence();
    if (a_repeats && (b.is_integer() || b.is(Kind::BigInt))) return repeat(context, a, b);
    if (b_repeats && (a.is_integer() || a.is(Kind::BigInt))) return repeat(context, b, a);
    if (a_repeats || b_repeats)
      fail_runtime("can't multiply sequence by non-int of type '" +
                   std::string(type_name(a_repeats ? b : a)) + "'");
  }
  fail_types(op, a, b);
}

Value get_slice(Context& context, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) fail_runtime(object.why_undefined());
  for (const Value* part : {&start, &stop, &step})
    if (part->is_undefined())
      fail_runtime("slice indices must be integers or None or have an __index__ method");
  switch (object.kind()) {
    case Kind::String:
      return slice_string(context, object, slice_range(length_of(object), start, stop, step));
    case Kind::List:
    case Kind::Tuple: {
      const auto& items = object.items();
      const SliceRange range = slice_range(static_cast<std::int64_t>(items.size()), start, stop, step);
      context.spend_items(static_cast<std::size_t>(range.count));
      std::vector<Value> out;
      out.reserve(static_cast<std::size_t>(range.count));
      std::int64_t i = range.start;
      for (std::int64_t n = 0; n < range.count; ++n, i += range.step)
        out.push_back(items[static_cast<std::size_t>(i)]);
      return object.is(Kind::List) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
    }
    case Kind::Range: {
      const Range& whole = object.as<Range>();
      const SliceRange range = slice_range(whole.size(), start, stop, step);
      auto part = std::make_shared<Range>();
      part->start = whole.at(range.start);
      part->step = whole.step * range.step;
      part->stop = part->start + part->step * range.count;
      return Value::object(Kind::Range, std::move(part));
    }
    case Kind::Dict:
      fail_runtime("unhashable type: 'slice'");
    default:
      fail_runtime("'" + std::string(type_name(object)) + "' object is not subscriptable");
  }
}

}  // namespace tandem::text::jinja
