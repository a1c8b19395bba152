// str() and repr() of template values, character for character as Python prints them.

#include <charconv>
#include <cmath>

#include "text/jinja/callable.h"
#include "text/jinja/meter.h"
#include "text/jinja/number.h"
#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_hex(std::string& out, char32_t c, int digits) {
  for (int i = digits - 1; i >= 0; --i) out += kHex[c >> (4 * i) & 15];
}

void append_items(std::string& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i]);
  }
}

void append_dict(std::string& out, const Dict& dict) {
  out += '{';
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, dict.entries[i].first);
    out += ": ";
    append_repr(out, dict.entries[i].second);
  }
  out += '}';
}

void append_view(std::string& out, const Value& value) {
  const View& view = value.as<View>();
  out += type_name(value);
  out += "([";
  bool first = true;
  for (const auto& [k, v] : view.dict.as<Dict>().entries) {
    if (!first) out += ", ";
    first = false;
    if (view.what == ViewKind::Items) out += '(';
    if (view.what != ViewKind::Values) append_repr(out, k);
    if (view.what == ViewKind::Items) out += ", ";
    if (view.what != ViewKind::Keys) append_repr(out, v);
    if (view.what == ViewKind::Items) out += ')';
  }
  out += "])";
}

void append_range(std::string& out, const Range& range) {
  out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) out += ", " + std::to_string(range.step);
  out += ')';
}

}  // namespace

std::string repr_of_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  std::string digits;
  std::string out;
  for (const char c : text.substr(0, e)) {
    if (c == '-')
      out += '-';
    else if (c != '.')
      digits += c;
  }
  int exponent = 0;
  const char* from = text.data() + e + 1;
  if (*from == '+') ++from;
  std::from_chars(from, end, exponent);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += '.' + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    if (magnitude < 10) out += '0';
    return out + std::to_string(magnitude);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  const auto point = static_cast<std::size_t>(exponent + 1);
  return out + digits.substr(0, point) + '.' + digits.substr(point);
}

void append_string_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(start, at - start);
    } else if (c < 0x100) {
      out += "\\x";
      append_hex(out, c, 2);
    } else if (c < 0x10000) {
      out += "\\u";
      append_hex(out, c, 4);
    } else {
      out += "\\U";
      append_hex(out, c, 8);
    }
  }
  out += quote;
}

void append_repr(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      out += "Undefined";
      return;
    case Kind::String:
      Meter::pay_bytes(value.as_string().size());
      if (value.is_markup()) out += "Markup(";
      append_string_repr(out, value.as_string());
      if (value.is_markup()) out += ')';
      return;
    default:
      append_text(out, value);
  }
}

void append_text(std::string& out, const Value& value) {
  Meter::pay();
  switch (value.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
      return;
    case Kind::None:
      out += "None";
      return;
    case Kind::Bool:
      out += value.as_bool() ? "True" : "False";
      return;
    case Kind::Int:
    case Kind::BigInt:
      out += int_text(value);
      return;
    case Kind::Float:
      out += repr_of_float(value.as_float());
      return;
    case Kind::String:
      Meter::pay_bytes(value.as_string().size());
      out += value.as_string();
      return;
    case Kind::List:
      out += '[';
      append_items(out, value.items());
      out += ']';
      return;
    case Kind::Tuple:
      out += '(';
      append_items(out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::Dict:
      append_dict(out, value.as<Dict>());
      return;
    case Kind::View:
      append_view(out, value);
      return;
    case Kind::Range:
      append_range(out, value.as<Range>());
      return;
    case Kind::Macro:
      out += "<Macro ";
      append_string_repr(out, value.as<Macro>().name);
      out += '>';
      return;
    // Python prints an address, or attributes that may hold the namespace itself.
    default:
      out += '<' + std::string(type_name(value)) + " object>";
      return;
  }
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.as_string();
  std::string out;
  append_text(out, value);
  return out;
}

}  // namespace tandem::text::jinja
