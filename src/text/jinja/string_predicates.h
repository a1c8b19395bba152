#pragma once

#include "text/jinja/callable.h"

namespace tandem::text::jinja {

// The methods of Python's str that ask something of all its characters: isalnum, isupper, ... Those named all_ are
// true if every character is of the class and there is one. Each takes no argument.
[[nodiscard]] Value all_alnum(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value all_alpha(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value all_decimal(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value all_digit(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value all_numeric(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value all_space(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value isprintable(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value isascii(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value islower(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value isupper(Context& context, const Value& self, Arguments& given);
[[nodiscard]] Value istitle(Context& context, const Value& self, Arguments& given);

}  // namespace tandem::text::jinja
