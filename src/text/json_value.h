#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.h"
#include "text/jinja/value.h"

namespace tandem::text {

// JSON as template values, the way Python's json module reads it: true, false and null become True,
// False and None, key order is kept, of two equal keys the later value stands in the earlier place, and
// integers are exact however long (up to 4300 digits).
//
// Thread: any. Cost: linear.

inline constexpr int kMaxJsonDepth = 100;

// Strict RFC 8259 (no NaN, no comments, nothing behind the document), UTF-8 checked.
// Errors: Invalid with the byte offset; nested deeper than kMaxJsonDepth.
[[nodiscard]] Result<jinja::Value> parse_json(std::string_view text);

// A document that is parsed already. Boost.JSON has rounded integers beyond 64 bits to doubles.
// Error: Invalid, nested deeper than kMaxJsonDepth.
[[nodiscard]] Result<jinja::Value> to_value(const boost::json::value& json);

}  // namespace tandem::text
