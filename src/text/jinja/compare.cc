// Python's == and < over template values.

#include <algorithm>

#include "text/jinja/meter.h"
#include "text/jinja/number.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {
namespace {

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size() != b.size()) return false;
  if (a.size() == 0) return true;
  return a.start == b.start && (a.size() == 1 || a.step == b.step);
}

// keys() and items() compare as sets; values() only with itself.
bool equal_views(const View& a, const View& b) {
  if (a.what != b.what) return false;
  if (a.what == ViewKind::Values) return &a == &b;
  const Dict& x = a.dict.as<Dict>();
  const Dict& y = b.dict.as<Dict>();
  if (a.what == ViewKind::Items) return equal_dicts(x, y);
  if (x.entries.size() != y.entries.size()) return false;
  return std::all_of(x.entries.begin(), x.entries.end(),
                     [&](const auto& entry) { return y.find(entry.first) != nullptr; });
}

bool holds(int c, Order order) {
  switch (order) {
    case Order::Less:
      return c < 0;
    case Order::LessEqual:
      return c <= 0;
    case Order::Greater:
      return c > 0 && c != 2;
    case Order::GreaterEqual:
      return c >= 0 && c != 2;
  }
  return false;
}

std::string_view sign(Order order) {
  switch (order) {
    case Order::Less:
      return "<";
    case Order::LessEqual:
      return "<=";
    case Order::Greater:
      return ">";
    case Order::GreaterEqual:
      return ">=";
  }
  return "<";
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  Meter::pay();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
    case Kind::None:
      return true;
    case Kind::String:
      if (a.as_string().size() != b.as_string().size()) return false;
      Meter::pay(a.as_string().size() / 64);
      return a.identity() == b.identity() || a.as_string() == b.as_string();
    case Kind::List:
    case Kind::Tuple:
      return a.identity() == b.identity() || equal_items(a.items(), b.items());
    case Kind::Dict:
      return a.identity() == b.identity() || equal_dicts(a.as<Dict>(), b.as<Dict>());
    case Kind::Range:
      return equal_ranges(a.as<Range>(), b.as<Range>());
    case Kind::View:
      return equal_views(a.as<View>(), b.as<View>());
    default:
      return a.identity() == b.identity();
  }
}

bool ordered(const Value& a, Order order, const Value& b) {
  Meter::pay();
  if (a.is_undefined()) fail_runtime(a.why_undefined());
  if (b.is_undefined()) fail_runtime(b.why_undefined());
  if (a.is_number() && b.is_number()) return holds(compare_numbers(a, b), order);
  if (a.is_string() && b.is_string()) {
    Meter::pay(a.as_string().size() / 64);
    // UTF-8 bytes sort as code points do.
    const int c = a.as_string().compare(b.as_string());
    return holds((c > 0) - (c < 0), order);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(x[i], y[i])) return ordered(x[i], order, y[i]);
    return holds((x.size() > y.size()) - (x.size() < y.size()), order);
  }
  fail_runtime("'" + std::string(sign(order)) + "' not supported between instances of '" +
               std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

}  // namespace tandem::text::jinja
