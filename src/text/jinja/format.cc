// "..." % values and "...".format(values).

#include <cmath>

#include <algorithm>
#include <charconv>

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 20;

// One conversion, from either syntax.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > = ^
  char sign = '-';
  bool alternate = false;
  bool grouped = false;  // thousands
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

std::string padded(Context& context, std::string text, const Spec& spec, char default_align) {
  const auto size = static_cast<std::int64_t>(length(text));
  if (size >= spec.width) return text;
  const auto missing = static_cast<std::size_t>(spec.width - size);
  context.spend(missing * spec.fill.size());
  const auto fill = [&](std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align != 0 ? spec.align : default_align) {
    case '<': return text + fill(missing);
    case '^': return fill(missing / 2) + text + fill(missing - missing / 2);
    case '=': {
      std::size_t head = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
      if (text.size() > head + 1 && text[head] == '0' && std::string_view("xXob").find(text[head + 1]) != kNoPosition)
        head += 2;
      return text.substr(0, head) + fill(missing) + text.substr(head);
    }
    default: return fill(missing) + text;
  }
}

std::string signed_text(bool negative, std::string magnitude, const Spec& spec) {
  if (negative) return "-" + magnitude;
  if (spec.sign == '+' || spec.sign == ' ') return spec.sign + magnitude;
  return magnitude;
}

std::string grouped(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string int_digits(const Value& value, char type, const Spec& spec, bool& negative) {
  Big big = to_big(value);
  negative = big < 0;
  if (negative) big = -big;
  std::string digits;
  if (type == 'x' || type == 'X' || type == 'o' || type == 'b') {
    const unsigned bits = type == 'b' ? 1 : type == 'o' ? 3 : 4;
    const char* const alphabet = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do {
      digits += alphabet[static_cast<unsigned>(big & ((1u << bits) - 1))];
      big >>= bits;
    } while (big != 0);
    std::reverse(digits.begin(), digits.end());
  } else {
    digits = big.str();
  }
  if (spec.precision > static_cast<std::int64_t>(digits.size()))
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  if (spec.grouped) digits = grouped(digits);
  if (spec.alternate && type != 'd') digits = std::string("0") + type + digits;
  return digits;
}

std::string float_digits(double d, char type, std::int64_t precision, bool alternate) {
  if (std::isnan(d) || std::isinf(d)) {
    std::string text = std::isnan(d) ? "nan" : "inf";
    return type >= 'A' && type <= 'Z' ? to_upper(text) : text;
  }
  if (precision > 400) fail_limit("a number is formatted with more than 400 digits");
  std::string format = alternate ? "%#.*" : "%.*";
  format += type;
  char buffer[1024];
  const int size = std::snprintf(buffer, sizeof buffer, format.c_str(), static_cast<int>(precision), d);
  return std::string(buffer, static_cast<std::size_t>(size));
}

std::string formatted_float(double d, const Spec& spec, char type) {
  const bool negative = std::signbit(d) && !std::isnan(d);
  std::string text = float_digits(std::fabs(d), type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  if (spec.grouped) {
    const std::size_t point = std::min(text.find_first_not_of("0123456789"), text.size());
    text = grouped(text.substr(0, point)) + text.substr(point);
  }
  return signed_text(negative, std::move(text), spec);
}

std::string cut(std::string text, std::int64_t precision) {
  if (precision < 0) return text;
  return text.substr(0, byte_offset(text, static_cast<std::size_t>(precision)));
}

std::string repr_text(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

// The arguments of %: a tuple's items one by one, or a single value.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& arguments) : all_(arguments) {}

  Value next() {
    if (all_.is(Kind::Tuple)) {
      if (used_ < all_.items().size()) return all_.items()[used_++];
    } else if (used_ == 0) {
      ++used_;
      return all_;
    }
    fail_runtime("not enough arguments for format string");
  }
  Value named(Context&, std::string_view name) {
    if (!all_.is(Kind::Dict)) fail_runtime("format requires a mapping");
    used_by_name_ = true;
    const Value* found = all_.as<Dict>().find(name);
    if (found == nullptr) fail_runtime("KeyError: '" + std::string(name) + "'");
    return *found;
  }
  void finish() const {
    if (used_by_name_) return;
    // Python passes over a value with subscripts that no conversion used.
    const bool passes = all_.is(Kind::Dict) || all_.is(Kind::List) || all_.is(Kind::Range) || all_.is_undefined();
    if (all_.is(Kind::Tuple) ? used_ < all_.items().size() : used_ == 0 && !passes)
      fail_runtime("not all arguments converted during string formatting");
  }

 private:
  const Value& all_;
  std::size_t used_ = 0;
  bool used_by_name_ = false;
};

Value as_integer(const Value& value, char type) {
  if (value.is_undefined()) fail_runtime(value.why_undefined());
  if (value.is(Kind::Float) && (type == 'd' || type == 'i' || type == 'u')) return truncate(value.as_float());
  if (!value.is_number() || value.is(Kind::Float))
    fail_runtime(std::string("%") + type + " format: a real number is required, not " + std::string(type_name(value)));
  return value;
}

double as_real(const Value& value) {
  if (value.is_undefined()) fail_runtime(value.why_undefined());
  if (!value.is_number()) fail_runtime("must be real number, not " + std::string(type_name(value)));
  const double d = to_double(value);
  if (value.is(Kind::BigInt) && std::isinf(d)) fail_runtime("int too large to convert to float");
  return d;
}

std::string percent_conversion(Context& context, const Value& value, const Spec& spec, bool escapes) {
  const auto escaped = [&](std::string text) { return escapes && !value.is_markup() ? html_escaped(text) : text; };
  switch (spec.type) {
    case 's': return padded(context, cut(escaped(to_text(value)), spec.precision), spec, '>');
    case 'r':
    case 'a': return padded(context, cut(escaped(repr_text(value)), spec.precision), spec, '>');
    case 'c': {
      if (value.is_string() && length(value.as_string()) == 1) return padded(context, value.as_string(), spec, '>');
      if (!value.is_integer() || value.as_int() < 0 || value.as_int() > 0x10ffff ||
          (value.as_int() >= 0xd800 && value.as_int() < 0xe000))
        fail_runtime("%c requires int or char");
      std::string text;
      append_code_point(text, static_cast<char32_t>(value.as_int()));
      return padded(context, text, spec, '>');
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      bool negative = false;
      const char type = spec.type == 'i' || spec.type == 'u' ? 'd' : spec.type;
      std::string digits = int_digits(as_integer(value, spec.type), type, spec, negative);
      return padded(context, signed_text(negative, std::move(digits), spec), spec, '>');
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return padded(context, formatted_float(as_real(value), spec, spec.type), spec, '>');
    default: fail_runtime(std::string("unsupported format character '") + spec.type + "'");
  }
}

std::int64_t parse_number(std::string_view text, std::size_t& at) {
  std::int64_t n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > kMaxWidth) fail_limit("a format is wider than " + std::to_string(kMaxWidth));
  }
  return n;
}

}  // namespace

std::string fixed_text(double d, int precision) {
  char buffer[1024];
  const int size = std::snprintf(buffer, sizeof buffer, "%.*f", precision, d);
  return std::string(buffer, static_cast<std::size_t>(size));
}

std::string percent_format(Context& context, std::string_view format, const Value& all, bool escapes) {
  PercentArguments arguments(all);
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    if (++at >= format.size()) fail_runtime("incomplete format");
    Spec spec;
    Value named;
    if (format[at] == '(') {
      int open = 1;
      const std::size_t start = ++at;
      while (at < format.size() && open > 0) {
        open += format[at] == '(' ? 1 : format[at] == ')' ? -1 : 0;
        ++at;
      }
      if (open > 0) fail_runtime("incomplete format key");
      named = arguments.named(context, format.substr(start, at - start - 1));
    }
    bool zero = false;
    for (; at < format.size(); ++at) {
      const char c = format[at];
      if (c == '-') spec.align = '<';
      else if (c == '+') spec.sign = '+';
      else if (c == ' ') spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#') spec.alternate = true;
      else if (c == '0') zero = true;
      else break;
    }
    const auto star_or_number = [&]() -> std::int64_t {
      if (at >= format.size() || format[at] != '*') return parse_number(format, at);
      ++at;
      const Value n = arguments.next();
      if (!n.is_integer()) fail_runtime("* wants int");
      if (n.as_int() > kMaxWidth || n.as_int() < -kMaxWidth) fail_limit("a format is too wide");
      return n.as_int();
    };
    spec.width = star_or_number();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (at < format.size() && format[at] == '.') {
      ++at;
      spec.precision = std::max<std::int64_t>(star_or_number(), 0);
    }
    while (at < format.size() && (format[at] == 'h' || format[at] == 'l' || format[at] == 'L')) ++at;
    if (at >= format.size()) fail_runtime("incomplete format");
    spec.type = format[at++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (zero && spec.align != '<' && std::string_view("diuxXoeEfFgG").find(spec.type) != kNoPosition) {
      spec.fill = "0";
      spec.align = '=';
    }
    if (spec.align == 0) spec.align = '>';
    out += percent_conversion(context, named.is_missing() ? arguments.next() : named, spec, escapes);
    context.step();
  }
  arguments.finish();
  return out;
}

namespace {

Spec parse_spec(std::string_view text) {
  Spec spec;
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
    if (++at >= text.size() || text[at] < '0' || text[at] > '9') fail_runtime("Format specifier missing precision");
    spec.precision = parse_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail_runtime("Invalid format specifier");
  return spec;
}

// format(value, spec) of Python.
std::string with_spec(Context& context, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(value);
  Spec spec = parse_spec(text);
  if (value.is_string()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.grouped || spec.alternate)
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
    if (spec.precision >= 0 || spec.grouped) fail_runtime("this format of a float needs a type, such as f or g");
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
      if (automatic < 0) fail_runtime("cannot switch from manual field specification to automatic field numbering");
      i = static_cast<std::size_t>(automatic++);
    } else {
      if (automatic > 0) fail_runtime("cannot switch from automatic field numbering to manual field specification");
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

std::string brace_format_at(Context& context, std::string_view format, Arguments& arguments, std::int64_t& automatic,
                            int level) {
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
    for (; end < format.size() && open > 0; ++end) open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
    if (open > 0) fail_runtime("expected '}' before end of string");
    std::string_view inside = format.substr(at + 1, end - at - 2);
    at = end;
    std::size_t name_end = 0;
    bool in_brackets = false;
    while (name_end < inside.size() && (in_brackets || (inside[name_end] != '!' && inside[name_end] != ':'))) {
      if (inside[name_end] == '[') in_brackets = true;
      if (inside[name_end] == ']') in_brackets = false;
      ++name_end;
    }
    Value value = field(context, inside.substr(0, name_end), arguments, automatic);
    inside.remove_prefix(name_end);
    if (inside.starts_with('!')) {
      if (inside.size() < 2 || (inside.size() > 2 && inside[2] != ':')) fail_runtime("expected ':' after conversion specifier");
      if (inside[1] == 'r') value = Value::string(repr_text(value));
      else if (inside[1] == 's') value = Value::string(to_text(value));
      else fail_runtime("Unknown conversion specifier " + std::string(inside.substr(1, 1)));
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
