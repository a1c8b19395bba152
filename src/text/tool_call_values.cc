#include "text/tool_call_values.h"

#include <algorithm>

#include "base/json_writer.h"

namespace tandem::text {
namespace {

namespace json = boost::json;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

void allow(std::string_view name, ValueTypes& types) {
  if (name == "string") types.string = true;
  if (name == "number" || name == "integer") types.number = true;
  if (name == "boolean") types.boolean = true;
  if (name == "null") types.null = true;
  if (name == "object") types.object = true;
  if (name == "array") types.array = true;
}

void allow_kind_of(const json::value& value, ValueTypes& types) {
  switch (value.kind()) {
    case json::kind::string: types.string = true; break;
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_: types.number = true; break;
    case json::kind::bool_: types.boolean = true; break;
    case json::kind::null: types.null = true; break;
    case json::kind::object: types.object = true; break;
    case json::kind::array: types.array = true; break;
  }
}

// A request's schemas are parsed JSON, so their depth is bounded; this bounds it again.
constexpr int kDeepest = 16;

ValueTypes read_types(const json::value& schema, int depth) {
  ValueTypes types;
  const json::object* object = schema.if_object();
  if (object == nullptr || depth > kDeepest) return types;
  if (const json::value* type = object->if_contains("type")) {
    if (const json::string* name = type->if_string()) allow(view(*name), types);
    if (const json::array* names = type->if_array()) {
      for (const json::value& item : *names) {
        if (const json::string* name = item.if_string()) allow(view(*name), types);
      }
    }
  }
  if (!types.any()) {
    if (const json::value* values = object->if_contains("enum"); values != nullptr && values->is_array()) {
      for (const json::value& value : values->get_array()) allow_kind_of(value, types);
    }
    if (const json::value* value = object->if_contains("const")) allow_kind_of(*value, types);
  }
  for (const char* several : {"anyOf", "oneOf", "allOf"}) {
    const json::value* list = object->if_contains(several);
    if (types.any() || list == nullptr || !list->is_array()) continue;
    for (const json::value& item : list->get_array()) {
      const ValueTypes more = read_types(item, depth + 1);
      types = {.string = types.string || more.string,
               .number = types.number || more.number,
               .boolean = types.boolean || more.boolean,
               .null = types.null || more.null,
               .object = types.object || more.object,
               .array = types.array || more.array};
    }
  }
  if (const json::value* nullable = object->if_contains("nullable"); nullable != nullptr && nullable->is_bool()) {
    types.null = types.null || nullable->get_bool();
  }
  return types;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string json_string(std::string_view text) {
  JsonWriter json;
  json.string(text);
  return json.take();
}

}  // namespace

ValueTypes types_of(const json::value& schema) {
  ValueTypes types = read_types(schema, 0);
  const bool says_only_null = types.null && !types.string && !types.number && !types.boolean && !types.object && !types.array;
  if (!types.any() || (says_only_null && schema.get_object().contains("nullable"))) types.string = true;
  return types;
}

std::string json_escaped(std::string_view text) {
  const std::string quoted = json_string(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string value_as_json(std::string_view value, const ValueTypes& types) {
  const std::string_view text = trimmed(value);
  if (types.null && (text == "null" || text == "None")) return "null";
  if (types.boolean && (text == "true" || text == "True")) return "true";
  if (types.boolean && (text == "false" || text == "False")) return "false";
  const bool number = !text.empty() && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
  const bool object = !text.empty() && text[0] == '{';
  const bool array = !text.empty() && text[0] == '[';
  if ((types.number && number) || (types.object && object) || (types.array && array)) {
    json::error_code error;
    const json::value parsed = json::parse(text, error);
    if (!error && (!number || parsed.is_number())) return std::string(text);
  }
  return json_string(value);
}

ToolSchemas::ToolSchemas(const json::array& tools) {
  for (const json::value& tool : tools) {
    const json::object* outer = tool.if_object();
    const json::value* function = outer == nullptr ? nullptr : outer->if_contains("function");
    if (function == nullptr || !function->is_object()) continue;
    const json::value* name = function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string()) continue;
    auto& parameters = functions_[std::string(view(name->get_string()))];
    const json::value* schema = function->get_object().if_contains("parameters");
    if (schema == nullptr || !schema->is_object()) continue;
    const json::value* properties = schema->get_object().if_contains("properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->get_object()) parameters[std::string(key.data(), key.size())] = types_of(property);
  }
}

bool ToolSchemas::declares(const std::string& function, const std::string& parameter) const {
  const auto found = functions_.find(function);
  return found != functions_.end() && found->second.contains(parameter);
}

ValueTypes ToolSchemas::types(const std::string& function, const std::string& parameter) const {
  if (!declares(function, parameter)) return {.string = true};
  return functions_.at(function).at(parameter);
}

}  // namespace tandem::text
