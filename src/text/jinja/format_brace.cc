// "...".format(values).

#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  if (!text.empty()) {
    std::size_t second = 0;
    (void)next_code_point(text, second);
    if (second < text.size() && is_align(text[second])) {
      spec.fill = std::string(text.substr(0, second));
      spec.align = text[second];
      at = second + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = parse_number(text, at);
  if (at < text.size() && text[at] == ',') {
    spec.grouped = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.') {
    if (++at >= text.size() || text[at] < '0' || text[at] > '9')
      fail_runtime("Format specifier missing precision");
    spec.precision = parse_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail_runtime("Invalid format specifier");
  return spec;
}

// format(value, spec) of Python.
std::string with_spec(Context& context, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(value);
  FormatSpec spec = parse_spec(text);
  if (value.is_string()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.grouped ||
        spec.alternate)
      fail_runtime("Unknown format code for object of type 'str'");
    return padded(context, cut(value.as_string(), spec.precision), spec, '<');
  }
  if (!value.is_number())
    fail_runtime("unsupported format string passed to " + std::string(type_name(value)) + ".__format__");
  const bool as_float = value.is(Kind::Float) || std::string_view("eEfFgG%").find(spec.type) != kNoPosition;
  if (spec.type != 0 && as_float) {
    if (std::string_view("eEfFgG%").find(spec.type) == kNoPosition)
      fail_runtime(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
    if (spec.type == '%') {
      std::string percent = formatted_float(as_real(value) * 100, spec, 'f') + "%";
      return padded(context, std::move(percent), spec, '>');
    }
    return padded(context, formatted_float(as_real(value), spec, spec.type), spec, '>');
  }
  if (as_float) {
    if (spec.precision >= 0 || spec.grouped)
      fail_runtime("this format of a float needs a type, such as f or g");
    const double d = value.as_float();
    return padded(context, signed_text(std::signbit(d), repr_of_float(std::fabs(d)), spec), spec, '>');
  }
  if (spec.precision >= 0) fail_runtime("Precision not allowed in integer format specifier");
  if (value.is(Kind::Bool) && spec.type == 0) {
    return padded(context, to_text(value), spec, '>');
  }
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("dxXob").find(type) == kNoPosition)
    fail_runtime(std::string("Unknown format code '") + type + "' for object of type 'int'");
  bool negative = false;
  std::string digits = int_digits(value, type, spec, negative);
  return padded(context, signed_text(negative, std::move(digits), spec), spec, '>');
}

// {0}, {name}, {0.a[b]} against the arguments; `automatic` counts {}.
Value field(Context& context, std::string_view name, Arguments& arguments, std::int64_t& automatic) {
  std::size_t at = std::min(name.find_first_of(".["), name.size());
  const std::string_view first = name.substr(0, at);
  Value value;
  const bool is_number = !first.empty() && first.find_first_not_of("0123456789") == kNoPosition;
  if (first.empty() || is_number) {
    std::size_t i = 0;
    if (first.empty()) {
      if (automatic < 0)
        fail_runtime("cannot switch from manual field specification to automatic field numbering");
      i = static_cast<std::size_t>(automatic++);
    } else {
      if (automatic > 0)
        fail_runtime("cannot switch from automatic field numbering to manual field specification");
      automatic = -1;
      std::size_t from = 0;
      i = static_cast<std::size_t>(parse_number(first, from));
    }
    if (i >= arguments.positional.size())
      fail_runtime("Replacement index " + std::to_string(i) + " out of range for positional args tuple");
    value = arguments.positional[i];
  } else {
    for (const auto& [key, given] : arguments.named)
      if (key == first) value = given;
    if (value.is_missing()) fail_runtime("KeyError: '" + std::string(first) + "'");
  }
  while (at < name.size()) {
    if (name[at] == '.') {
      const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
      if (end == at + 1) fail_runtime("Empty attribute in format string");
      value = get_attribute(context, value, name.substr(at + 1, end - at - 1));
      at = end;
    } else if (name[at] == '[') {
      const std::size_t end = name.find(']', at);
      if (end == kNoPosition) fail_runtime("Missing ']' in format string");
      const std::string_view key = name.substr(at + 1, end - at - 1);
      if (key.empty()) fail_runtime("Empty attribute in format string");
      std::size_t from = 0;
      const bool index = key.find_first_not_of("0123456789") == kNoPosition;
      value = get_item(context, value,
                       index ? Value::integer(parse_number(key, from)) : Value::string(std::string(key)));
      at = end + 1;
    } else {
      fail_runtime("Only '.' or '[' may follow ']' in format field specifier");
    }
  }
  return value;
}

std::string brace_format_at(Context& context, std::string_view format, Arguments& arguments,
                            std::int64_t& automatic, int level) {
  if (level > 2) fail_runtime("Max string recursion exceeded");
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out += c;
      ++at;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') fail_runtime("Single '}' encountered in format string");
    int open = 1;
    std::size_t end = at + 1;
    for (; end < format.size() && open > 0; ++end)
      open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
    if (open > 0) fail_runtime("expected '}' before end of string");
    std::string_view inside = format.substr(at + 1, end - at - 2);
    at = end;
    std::size_t name_end = 0;
    bool in_brackets = false;
    while (name_end < inside.size() &&
           (in_brackets || (inside[name_end] != '!' && inside[name_end] != ':'))) {
      if (inside[name_end] == '[') in_brackets = true;
      if (inside[name_end] == ']') in_brackets = false;
      ++name_end;
    }
    Value value = field(context, inside.substr(0, name_end), arguments, automatic);
    inside.remove_prefix(name_end);
    if (inside.starts_with('!')) {
      if (inside.size() < 2 || (inside.size() > 2 && inside[2] != ':'))
        fail_runtime("expected ':' after conversion specifier");
      if (inside[1] == 'r')
        value = Value::string(repr_text(value));
      else if (inside[1] == 's')
        value = Value::string(to_text(value));
      else
        fail_runtime("Unknown conversion specifier " + std::string(inside.substr(1, 1)));
      inside.remove_prefix(2);
    }
    if (inside.starts_with(':')) inside.remove_prefix(1);
    const std::string spec = brace_format_at(context, inside, arguments, automatic, level + 1);
    out += with_spec(context, value, spec);
    context.step();
  }
  return out;
}

}  // namespace

std::string brace_format(Context& context, std::string_view format, Arguments& arguments) {
  std::int64_t automatic = 0;
  return brace_format_at(context, format, arguments, automatic, 0);
}

}  // namespace tandem::text::jinja
