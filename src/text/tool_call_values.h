#pragma once

#include <boost/json.hpp>
#include <map>
#include <string>
#include <string_view>

namespace tandem::text {

// The kinds of JSON value that a schema lets a parameter have.
struct ValueTypes {
  bool string = false, number = false, boolean = false, null = false, object = false, array = false;

  [[nodiscard]] bool only_string() const { return string && !number && !boolean && !null && !object && !array; }
  [[nodiscard]] bool any() const { return string || number || boolean || null || object || array; }
};

// Reads "type" (a name or a list), "enum", "const", "anyOf", "oneOf", "allOf", "nullable". A schema
// that says nothing of these, or refers to another one, means a string.
[[nodiscard]] ValueTypes types_of(const boost::json::value& schema);

// The model's spelling of a value as JSON text. What is JSON of an allowed kind stays as it is written;
// Python's True, False and None count as JSON's; everything else becomes a JSON string of exactly
// `value`.
[[nodiscard]] std::string value_as_json(std::string_view value, const ValueTypes& types);

// `text` with what JSON strings need escaped, without quotes.
[[nodiscard]] std::string json_escaped(std::string_view text);

// The declared parameters of the tools of a request.
class ToolSchemas {
 public:
  // Items that are not of the form in tool_call_parser.h declare nothing.
  explicit ToolSchemas(const boost::json::array& tools);

  [[nodiscard]] bool declares(const std::string& function, const std::string& parameter) const;
  // A string, if it is not declared.
  [[nodiscard]] ValueTypes types(const std::string& function, const std::string& parameter) const;

 private:
  std::map<std::string, std::map<std::string, ValueTypes>> functions_;
};

}  // namespace tandem::text
