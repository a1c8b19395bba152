#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/operations.h"
#include "text/jinja/registry.h"

namespace tandem::text::jinja {

struct NamedFilter {
  std::string_view name;
  NativeFilter filter;
};

// The three groups of filters.
[[nodiscard]] const std::vector<NamedFilter>& text_filters();
[[nodiscard]] const std::vector<NamedFilter>& sequence_filters();
[[nodiscard]] const std::vector<NamedFilter>& value_filters();

// What filters share: optional parameters with Python's rules.
[[nodiscard]] inline bool flag(const Value& v, bool fallback = false) {
  return v.is_missing() ? fallback : is_true(v);
}
[[nodiscard]] std::int64_t whole(const Value& v, std::int64_t fallback);
// str() of any value, Undefined as "".
[[nodiscard]] std::string text_of(const Value& v);

// Jinja's attribute="a.b.0" and "a,b": the parts of one path.
using AttributePath = std::vector<Value>;
[[nodiscard]] AttributePath attribute_path(const Value& attribute);
[[nodiscard]] Value follow(Context& context, Value item, const AttributePath& path);
// Lower case for strings, everything else as it is.
[[nodiscard]] Value without_case(Context& context, const Value& v);

}  // namespace tandem::text::jinja
