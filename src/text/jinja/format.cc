#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

std::string grouped(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
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

}  // namespace

std::string padded(Context& context, std::string text, const FormatSpec& spec, char default_align) {
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
    case '<':
      return text + fill(missing);
    case '^':
      return fill(missing / 2) + text + fill(missing - missing / 2);
    case '=': {
      std::size_t head = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
      if (text.size() > head + 1 && text[head] == '0' &&
          std::string_view("xXob").find(text[head + 1]) != kNoPosition)
        head += 2;
      return text.substr(0, head) + fill(missing) + text.substr(head);
    }
    default:
      return fill(missing) + text;
  }
}

std::string signed_text(bool negative, std::string magnitude, const FormatSpec& spec) {
  if (negative) return "-" + magnitude;
  if (spec.sign == '+' || spec.sign == ' ') return spec.sign + magnitude;
  return magnitude;
}

std::string int_digits(const Value& value, char type, const FormatSpec& spec, bool& negative) {
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

std::string formatted_float(double d, const FormatSpec& spec, char type) {
  const bool negative = std::signbit(d) && !std::isnan(d);
  std::string text =
      float_digits(std::fabs(d), type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
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

double as_real(const Value& value) {
  if (value.is_undefined()) fail_runtime(value.why_undefined());
  if (!value.is_number()) fail_runtime("must be real number, not " + std::string(type_name(value)));
  const double d = to_double(value);
  if (value.is(Kind::BigInt) && std::isinf(d)) fail_runtime("int too large to convert to float");
  return d;
}

std::int64_t parse_number(std::string_view text, std::size_t& at) {
  std::int64_t n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > kMaxWidth) fail_limit("a format is wider than " + std::to_string(kMaxWidth));
  }
  return n;
}

std::string fixed_text(double d, int precision) {
  char buffer[1024];
  const int size = std::snprintf(buffer, sizeof buffer, "%.*f", precision, d);
  return std::string(buffer, static_cast<std::size_t>(size));
}

}  // namespace tandem::text::jinja
