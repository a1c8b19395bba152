#pragma once

#include <string_view>

#include "text/jinja/callable.h"

namespace tandem::text::jinja {

struct NamedMethod {
  std::string_view name;
  NativeMethod call;  // nullptr: Python has it, chat templates have no use for it
};

// The methods of str, sorted by name; nullptr if there is none.
[[nodiscard]] const NamedMethod* find_string_method(std::string_view name);

// str.splitlines(), also for the filter `indent`.
[[nodiscard]] std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// str.replace; count < 0: all. Pays for the result.
[[nodiscard]] std::string replaced(Context& context, std::string_view text, std::string_view from,
                                   std::string_view to, std::int64_t count);

}  // namespace tandem::text::jinja
