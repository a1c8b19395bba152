// "..." % values.

#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

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
    const bool passes =
        all_.is(Kind::Dict) || all_.is(Kind::List) || all_.is(Kind::Range) || all_.is_undefined();
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
    fail_runtime(std::string("%") + type + " format: a real number is required, not " +
                 std::string(type_name(value)));
  return value;
}

std::string percent_conversion(Context& context, const Value& value, const FormatSpec& spec, bool escapes) {
  const auto escaped = [&](std::string text) {
    return escapes && !value.is_markup() ? html_escaped(text) : text;
  };
  switch (spec.type) {
    case 's':
      return padded(context, cut(escaped(to_text(value)), spec.precision), spec, '>');
    case 'r':
    case 'a':
      return padded(context, cut(escaped(repr_text(value)), spec.precision), spec, '>');
    case 'c': {
      if (value.is_string() && length(value.as_string()) == 1)
        return padded(context, value.as_string(), spec, '>');
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
    case 'G':
      return padded(context, formatted_float(as_real(value), spec, spec.type), spec, '>');
    default:
      fail_runtime(std::string("unsupported format character '") + spec.type + "'");
  }
}

}  // namespace

std::string percent_format(Context& context, std::string_view format, const Value& all, bool escapes) {
  PercentArguments arguments(all);
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    if (++at >= format.size()) fail_runtime("incomplete format");
    FormatSpec spec;
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
      if (c == '-')
        spec.align = '<';
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        zero = true;
      else
        break;
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

}  // namespace tandem::text::jinja
