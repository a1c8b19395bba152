#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/sampling_ranges.h"
#include "server/api_error.h"

namespace tandem::server {

namespace json = boost::json;

// Parses a body. Standard JSON in UTF-8, at most 100 levels deep; of equal keys the last counts.
// Error: 400 with where the text stops being that.
[[nodiscard]] tl::expected<json::value, ApiError> parse_json(std::string_view text);

// The same, and it must be an object.
[[nodiscard]] tl::expected<json::object, ApiError> parse_object(std::string_view text);

// What may be shown of a value in a message: a scalar as it is (cut), else only its kind and size.
[[nodiscard]] std::string shown_value(const json::value& value);

// A field that is accepted only with one value, the one that changes nothing.
struct OnlyDefault {
  std::string_view name;
  std::string_view value;  // JSON text; null is always fine too
  std::string_view hint;   // what to do instead; may be empty
};

// Reads the members of one object, each at most once, and remembers the first thing that is wrong;
// after it, every reader returns "absent". null counts as absent. Types are strict: true is no
// number, "1" is no number, 1.0 is no integer.
//
// Thread: one. Lifetime: within that of the object.
class Fields {
 public:
  // `prefix` stands before names in messages and `param`, e.g. "messages[3]."
  explicit Fields(const json::object& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t lowest, std::int64_t highest) {
    return integer(ops::IntegerRange{name, lowest, highest});
  }
  [[nodiscard]] std::optional<std::int64_t> integer(const ops::IntegerRange& range);
  [[nodiscard]] std::optional<double> number(std::string_view name, double lowest, double highest) {
    return number(ops::NumberRange{name, lowest, highest});
  }
  [[nodiscard]] std::optional<double> number(const ops::NumberRange& range);
  [[nodiscard]] std::optional<bool> boolean(std::string_view name);
  [[nodiscard]] std::optional<std::string> string(std::string_view name);
  [[nodiscard]] const json::object* object(std::string_view name);
  [[nodiscard]] const json::array* array(std::string_view name);
  [[nodiscard]] const json::value* any(std::string_view name);  // present and not null

  void ignore(std::span<const std::string_view> names);      // accepted with any value
  void only_default(std::span<const OnlyDefault> fields);

  // Everything not asked for so far is unknown: 400 naming the first, unless it is null.
  void refuse_the_rest(std::string_view what_exists);

  // Records an error unless there is one.
  void fail(std::string_view name, const std::string& message, std::string code = "invalid_value");
  void fail(ApiError error);

  [[nodiscard]] bool ok() const { return !error_; }
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
  [[nodiscard]] std::string full(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  void wrong_type(std::string_view name, const json::value& value, std::string_view wanted);

  const json::object& object_;
  std::string prefix_;
  std::set<std::string_view, std::less<>> seen_;
  std::optional<ApiError> error_;
};

}  // namespace tandem::server
