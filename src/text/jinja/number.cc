#include "text/jinja/number.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

namespace mp = boost::multiprecision;

constexpr std::size_t kMaxPrintedDigits = 4300;

void check_size(const Big& value) {
  if (value != 0 && mp::msb(mp::abs(value)) >= kMaxIntBits)
    fail_limit("an integer has more than " + std::to_string(kMaxIntBits) + " bits");
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}

Big floor_div(const Big& a, const Big& b) {
  Big q = a / b;
  const Big r = a - q * b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  return q;
}

double float_mod(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0) {
    if ((b < 0) != (m < 0)) m += b;
  } else {
    m = std::copysign(0.0, b);
  }
  return m;
}

double float_floor_div(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value float_power(double a, double b) {
  if (a == 0 && b < 0) fail_runtime("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && b != std::floor(b))
    fail_runtime("a negative number raised to a fraction is complex; templates have no complex numbers");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    fail_runtime("(34, 'Numerical result out of range')");
  return Value::real(result);
}

Value int_power(const Big& a, const Value& exponent) {
  if (exponent.is(Kind::BigInt)) {
    if (a == 0 || a == 1) return from_big(a);
    fail_limit("an integer has more than " + std::to_string(kMaxIntBits) + " bits");
  }
  const std::int64_t e = exponent.as_int();
  const std::size_t bits = a == 0 ? 1 : mp::msb(mp::abs(a)) + 1;
  if (bits > 1 && static_cast<double>(bits - 1) * static_cast<double>(e) > kMaxIntBits)
    fail_limit("an integer has more than " + std::to_string(kMaxIntBits) + " bits");
  if (bits <= 1) {  // 0, 1 and -1
    if (e == 0) return Value::integer(1);
    return from_big(a < 0 && e % 2 == 0 ? Big(1) : a);
  }
  return from_big(mp::pow(a, static_cast<unsigned>(e)));
}

Value int_operation(Operator op, const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    const std::int64_t x = a.as_int();
    const std::int64_t y = b.as_int();
    std::int64_t r = 0;
    switch (op) {
      case Operator::Add:
        if (!__builtin_add_overflow(x, y, &r)) return Value::integer(r);
        break;
      case Operator::Subtract:
        if (!__builtin_sub_overflow(x, y, &r)) return Value::integer(r);
        break;
      case Operator::Multiply:
        if (!__builtin_mul_overflow(x, y, &r)) return Value::integer(r);
        break;
      case Operator::FloorDivide:
        if (y == 0) fail_runtime("integer division or modulo by zero");
        if (y != -1) return Value::integer(floor_div(x, y));
        break;
      case Operator::Modulo:
        if (y == 0) fail_runtime("integer modulo by zero");
        if (y == -1) return Value::integer(0);
        return Value::integer(x - floor_div(x, y) * y);
      default:
        break;
    }
  }
  const Big x = to_big(a);
  const Big y = to_big(b);
  switch (op) {
    case Operator::Add:
      return from_big(x + y);
    case Operator::Subtract:
      return from_big(x - y);
    case Operator::Multiply:
      return from_big(x * y);
    case Operator::FloorDivide:
      if (y == 0) fail_runtime("integer division or modulo by zero");
      return from_big(floor_div(x, y));
    case Operator::Modulo:
      if (y == 0) fail_runtime("integer modulo by zero");
      return from_big(x - floor_div(x, y) * y);
    case Operator::Divide: {
      if (y == 0) fail_runtime("division by zero");
      const double dx = to_double(a);
      const double dy = to_double(b);
      if (std::isinf(dx) || std::isinf(dy)) fail_runtime("integer division result too large for a float");
      return Value::real(dx / dy);
    }
    case Operator::Power:
      if (y < 0) {
        if (x == 0) fail_runtime("0.0 cannot be raised to a negative power");
        return float_power(to_double(a), to_double(b));
      }
      return int_power(x, b);
  }
  fail_runtime("unknown operator");
}

}  // namespace

Value from_big(Big value) {
  if (value >= std::numeric_limits<std::int64_t>::min() && value <= std::numeric_limits<std::int64_t>::max())
    return Value::integer(value.convert_to<std::int64_t>());
  check_size(value);
  return Value::object(Kind::BigInt, std::make_shared<BigInt>(std::move(value)));
}

Big to_big(const Value& value) {
  if (value.is(Kind::BigInt)) return value.as<BigInt>().value;
  return Big(value.as_int());
}

double to_double(const Value& value) {
  if (value.is(Kind::Float)) return value.as_float();
  if (value.is_integer()) return static_cast<double>(value.as_int());
  // Through text: the conversion then rounds to nearest even, as Python's does.
  return std::strtod(value.as<BigInt>().value.str().c_str(), nullptr);
}

Value number_operation(Operator op, const Value& a, const Value& b) {
  if (!a.is(Kind::Float) && !b.is(Kind::Float)) return int_operation(op, a, b);
  const double x = to_double(a);
  const double y = to_double(b);
  if ((a.is(Kind::BigInt) && std::isinf(x)) || (b.is(Kind::BigInt) && std::isinf(y)))
    fail_runtime("int too large to convert to float");
  switch (op) {
    case Operator::Add:
      return Value::real(x + y);
    case Operator::Subtract:
      return Value::real(x - y);
    case Operator::Multiply:
      return Value::real(x * y);
    case Operator::Divide:
      if (y == 0) fail_runtime("float division by zero");
      return Value::real(x / y);
    case Operator::FloorDivide:
      if (y == 0) fail_runtime("float floor division by zero");
      return Value::real(float_floor_div(x, y));
    case Operator::Modulo:
      if (y == 0) fail_runtime("float modulo by zero");
      return Value::real(float_mod(x, y));
    case Operator::Power:
      return float_power(x, y);
  }
  fail_runtime("unknown operator");
}

Value negate(const Value& a) {
  if (a.is(Kind::Float)) return Value::real(-a.as_float());
  return int_operation(Operator::Subtract, Value::integer(0), a);
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return (a.as_int() > b.as_int()) - (a.as_int() < b.as_int());
  if (a.is(Kind::Float) && b.is(Kind::Float)) {
    const double x = a.as_float();
    const double y = b.as_float();
    if (std::isnan(x) || std::isnan(y)) return 2;
    return (x > y) - (x < y);
  }
  if (!a.is(Kind::Float) && !b.is(Kind::Float)) {
    const int c = to_big(a).compare(to_big(b));
    return (c > 0) - (c < 0);
  }
  // An int and a float: exactly, not after rounding the int.
  const bool left = a.is(Kind::Float);
  const double d = left ? a.as_float() : b.as_float();
  if (std::isnan(d)) return 2;
  if (std::isinf(d)) return (d > 0) == left ? 1 : -1;
  const Big i = to_big(left ? b : a);
  const double whole = std::floor(d);
  const Big w(whole);
  int c = w.compare(i);  // of the float against the int
  c = (c > 0) - (c < 0);
  if (c == 0 && d > whole) c = 1;
  return left ? c : -c;
}

Value parse_int(std::string_view text, int base) {
  text = strip_space(text, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefix = [&](char letter) {
    return text.size() > 1 && text[0] == '0' && (text[1] | 32) == letter;
  };
  bool underscore_may_follow = false;
  bool only_zeros = false;
  const auto take_prefix = [&](int of) {
    base = of;
    text.remove_prefix(2);
    underscore_may_follow = true;
  };
  if (base == 0) {
    if (prefix('x'))
      take_prefix(16);
    else if (prefix('o'))
      take_prefix(8);
    else if (prefix('b'))
      take_prefix(2);
    else {
      base = 10;
      only_zeros = text.size() > 1 && text[0] == '0';
    }
  } else if ((base == 16 && prefix('x')) || (base == 8 && prefix('o')) || (base == 2 && prefix('b'))) {
    take_prefix(base);
  }
  if (base < 2 || base > 36) fail_runtime("int() base must be >= 2 and <= 36, or 0");
  if (text.empty() || text.size() > kMaxPrintedDigits) return Value();
  Big result = 0;
  bool last_was_digit = underscore_may_follow;
  for (const char c : text) {
    if (c == '_') {
      if (!last_was_digit) return Value();
      last_was_digit = false;
      continue;
    }
    int digit = 99;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if ((c | 32) >= 'a' && (c | 32) <= 'z')
      digit = (c | 32) - 'a' + 10;
    if (digit >= base || (only_zeros && digit != 0)) return Value();
    result = result * base + digit;
    last_was_digit = true;
  }
  if (!last_was_digit) return Value();
  return from_big(negative ? Big(-result) : result);
}

Value parse_float(std::string_view text) {
  text = strip_space(text, true, true);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](std::size_t k) {
      return k < text.size() && text[k] >= '0' && text[k] <= '9';
    };
    if (text[i] == '_') {
      if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return Value();
      continue;
    }
    plain += text[i];
  }
  std::string lower = to_lower(plain);
  std::string_view rest = lower;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest == "inf" || rest == "infinity") {
    const double inf = std::numeric_limits<double>::infinity();
    return Value::real(negative ? -inf : inf);
  }
  if (rest == "nan") return Value::real(std::numeric_limits<double>::quiet_NaN());
  if (rest.empty() || !(rest[0] == '.' || (rest[0] >= '0' && rest[0] <= '9'))) return Value();
  double d = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), d);
  if (end != rest.data() + rest.size()) return Value();
  // Out of range leaves `d` alone; strtod says whether that was too large or too small.
  if (error == std::errc::result_out_of_range) d = std::strtod(std::string(rest).c_str(), nullptr);
  return Value::real(negative ? -d : d);
}

Value truncate(double d) {
  if (std::isnan(d)) fail_runtime("cannot convert float NaN to integer");
  if (std::isinf(d)) fail_runtime("cannot convert float infinity to integer");
  return from_big(Big(std::trunc(d)));
}

std::string int_text(const Value& value) {
  if (value.is_integer()) return std::to_string(value.as_int());
  std::string text = value.as<BigInt>().value.str();
  if (text.size() - (text[0] == '-') > kMaxPrintedDigits)
    fail_runtime("Exceeds the limit (4300 digits) for integer string conversion");
  return text;
}

}  // namespace tandem::text::jinja
