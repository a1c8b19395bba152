#pragma once

#include "server/fields.h"

namespace tandem::server {

// Reads `tools` and `tool_choice`. With tool_choice "none" the tools are checked but not offered:
// `tools` stays empty. Error: 400 for "required" and for a named function, which need constrained
// decoding.
void read_tools(Fields& fields, json::array& tools);

// `tool_calls` of an assistant message, for the template: arguments are an object or the text of one. `message` gets
// the first error.
[[nodiscard]] json::array read_tool_calls(Fields& message, const json::array& calls);

}  // namespace tandem::server
