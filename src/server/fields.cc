#include "server/fields.h"

#include <fmt/format.h>

#include <limits>

#include "server/http_message.h"

namespace tandem::server {
namespace {

constexpr std::size_t kMaxDepth = 100;

ApiError not_json(std::string message) {
  return {400, std::move(message), "invalid_request_error", "", "invalid_json"};
}

// The whole numbers that JSON can carry here: -2^63 to 2^63 - 1. Larger ones are the caller's to see.
std::optional<std::int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) return std::numeric_limits<std::int64_t>::max();
  return std::nullopt;
}

std::optional<double> as_number(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double()) return value.get_double();
  return std::nullopt;
}

// 1 and 1.0 are the same default.
bool same_value(const json::value& a, const json::value& b) {
  const auto x = as_number(a), y = as_number(b);
  return x && y ? *x == *y : a == b;
}

}  // namespace

tl::expected<json::value, ApiError> parse_json(std::string_view text) {
  if (text.find_first_not_of(" \n\r\t") == std::string_view::npos) return tl::unexpected(not_json("The body is empty; send a JSON object."));
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::stream_parser parser({}, options);
  json::error_code error;
  const std::size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && !parser.done()) parser.finish(error);  // a number, or nothing whole
  const auto at = [&](std::size_t offset) { return fmt::format("after byte {} of {}", offset, text.size()); };
  if (error == json::error::too_deep) {
    return tl::unexpected(not_json(fmt::format("The body nests deeper than {} levels.", kMaxDepth)));
  }
  if (error) {
    return tl::unexpected(not_json(fmt::format("The body is not JSON in UTF-8: {} {}.", error.message(), at(used))));
  }
  for (std::size_t i = used; i < text.size(); ++i) {
    if (text[i] != ' ' && text[i] != '\n' && text[i] != '\r' && text[i] != '\t')
      return tl::unexpected(not_json(fmt::format("The body is not JSON: more text follows {}.", at(i))));
  }
  return parser.release();
}

tl::expected<json::object, ApiError> parse_object(std::string_view text) {
  auto value = parse_json(text);
  if (!value) return tl::unexpected(std::move(value.error()));
  if (!value->is_object())
    return tl::unexpected(not_json("The body must be a JSON object, got " + shown_value(*value) + "."));
  return std::move(value->get_object());
}

std::string shown_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::int64: return fmt::format("{}", value.get_int64());
    case json::kind::uint64: return fmt::format("{}", value.get_uint64());
    case json::kind::double_: {
      // 1.0 and 1e3 are no integers here, so they must not look like them.
      const std::string text = fmt::format("{}", value.get_double());
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    case json::kind::string: {
      const auto& text = value.get_string();
      return '"' + shown({text.data(), text.size()}, 60) + '"';
    }
    case json::kind::array: return fmt::format("a list of {}", value.get_array().size());
    case json::kind::object: return fmt::format("an object of {} members", value.get_object().size());
  }
  return "a value";
}

const json::value* Fields::any(std::string_view name) {
  const json::value* value = object_.if_contains(name);
  if (value == nullptr) return nullptr;
  seen_.insert(name);
  if (error_ || value->is_null()) return nullptr;
  return value;
}

void Fields::wrong_type(std::string_view name, const json::value& value, std::string_view wanted) {
  fail(name, fmt::format("{} must be {}, got {}.", full(name), wanted, shown_value(value)));
}

std::optional<std::int64_t> Fields::integer(const ops::IntegerRange& range) {
  const json::value* value = any(range.name);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (number && range.holds(*number)) return number;
  wrong_type(range.name, *value, ops::what_works(range));
  return std::nullopt;
}

std::optional<double> Fields::number(const ops::NumberRange& range) {
  const json::value* value = any(range.name);
  if (value == nullptr) return std::nullopt;
  const auto number = as_number(*value);
  if (number && range.holds(*number)) return number;
  wrong_type(range.name, *value, ops::what_works(range));
  return std::nullopt;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json::value* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  wrong_type(name, *value, "true or false");
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name) {
  const json::value* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string(value->get_string());
  wrong_type(name, *value, "a string");
  return std::nullopt;
}

const json::object* Fields::object(std::string_view name) {
  const json::value* value = any(name);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return &value->get_object();
  wrong_type(name, *value, "an object");
  return nullptr;
}

const json::array* Fields::array(std::string_view name) {
  const json::value* value = any(name);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return &value->get_array();
  wrong_type(name, *value, "a list");
  return nullptr;
}

void Fields::ignore(std::span<const std::string_view> names) {
  for (const std::string_view name : names) seen_.insert(name);
}

void Fields::only_default(std::span<const OnlyDefault> fields) {
  for (const OnlyDefault& field : fields) {
    const json::value* value = any(field.name);
    if (value == nullptr || same_value(*value, json::parse(field.value))) continue;
    fail(field.name,
         fmt::format("{} = {} is not supported; leave it out or send {}.{}{}", full(field.name), shown_value(*value),
                     field.value, field.hint.empty() ? "" : " ", field.hint),
         "unsupported_field");
  }
}

void Fields::refuse_the_rest(std::string_view what_exists) {
  for (const auto& member : object_) {
    const std::string_view name(member.key().data(), member.key().size());
    if (member.value().is_null() || seen_.contains(name)) continue;
    fail(shown(name, 80), fmt::format("Unknown field \"{}\". {}", full(shown(name, 80)), what_exists), "unknown_field");
    return;
  }
}

void Fields::fail(std::string_view name, const std::string& message, std::string code) {
  fail(bad_field(full(name), message, std::move(code)));
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace tandem::server
