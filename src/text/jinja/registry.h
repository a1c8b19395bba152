#pragma once

#include <string_view>

#include "text/jinja/callable.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {

// Filters and tests by name. The tables are built on first use and never change.
struct NativeFilter {
  Value (*apply)(Context&, const Value& input, Arguments&);
};
struct NativeTest {
  bool (*apply)(Context&, const Value& input, Arguments&);
};

// nullptr if there is none of that name. A filter that Jinja has and we do not is_unsupported_filter.
[[nodiscard]] const NativeFilter* find_filter(std::string_view name);
[[nodiscard]] const NativeTest* find_test(std::string_view name);
[[nodiscard]] bool is_unsupported_filter(std::string_view name);

// nullptr if Python's type has no method of that name. Methods that would change the value are found
// too: `is_mutator` tells.
[[nodiscard]] const NativeMethod* find_method(const Value& self, std::string_view name,
                                              std::string_view& interned);
[[nodiscard]] bool is_mutator(const Value& self, std::string_view name);

}  // namespace tandem::text::jinja
