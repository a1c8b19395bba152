#pragma once

#include <optional>

#include "text/jinja/callable.h"
#include "text/jinja/context.h"
#include "text/jinja/number.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {

// The operators and look-ups of expressions, with Python's and Jinja's rules. Runtime failures carry
// Python's wording where there is one.

[[nodiscard]] Value binary_operation(Context& context, Operator op, const Value& a, const Value& b);
[[nodiscard]] Value add(Context& context, const Value& a, const Value& b);
[[nodiscard]] bool contains(Context& context, const Value& container, const Value& item);

// object.name: a method or property of the type first, then the data. Undefined when there is neither,
// and for what Jinja's sandbox keeps away (__names__, methods that change a value).
[[nodiscard]] Value get_attribute(Context& context, const Value& object, std::string_view name);
// object[key]: the data first.
[[nodiscard]] Value get_item(Context& context, const Value& object, const Value& key);
// object[start:stop:step]; Missing stands for a part that was left out.
[[nodiscard]] Value get_slice(Context& context, const Value& object, const Value& start, const Value& stop,
                              const Value& step);

// len(value), or -1 if it has none.
[[nodiscard]] std::int64_t length_of(const Value& value);
[[nodiscard]] std::string html_escaped(std::string_view text);

// Reads the items of an iterable one by one. Strings give characters, mappings their keys; Undefined
// gives none. A generator is consumed.
class Cursor {
 public:
  // Runtime failure "'int' object is not iterable".
  explicit Cursor(Value source);
  bool next(Value& item);

 private:
  Value source_;
  std::size_t at_ = 0;
};
[[nodiscard]] bool is_iterable(const Value& value);
// All items, paid for.
[[nodiscard]] std::vector<Value> to_items(Context& context, const Value& iterable);

// "format % arguments" and "format".format(arguments).
// `escapes`: the format is marked safe, so what it takes in is HTML-escaped.
[[nodiscard]] std::string percent_format(Context& context, std::string_view format, const Value& arguments,
                                         bool escapes = false);
[[nodiscard]] std::string brace_format(Context& context, std::string_view format, Arguments& arguments);
// printf-like parts that both and `round` share: digits after the point with Python's rounding.
[[nodiscard]] std::string fixed_text(double d, int precision);

// json.dumps with the arguments of the chat templates' tojson filter.
struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
[[nodiscard]] std::string to_json(Context& context, const Value& value, const JsonStyle& style);

}  // namespace tandem::text::jinja
