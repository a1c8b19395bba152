#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace tandem::text::jinja {

// Python's numbers: ints without bound (bounded here at kMaxIntBits, far beyond what can be printed),
// floats, and bools that count as 0 and 1. Every failure is Runtime with Python's wording, or Limit.

using Big = boost::multiprecision::cpp_int;

class BigInt : public Object {
 public:
  explicit BigInt(Big v) : value(std::move(v)) {}
  Big value;  // never fits 64 bits: those are Kind::Int
};

inline constexpr unsigned kMaxIntBits = 1 << 16;

[[nodiscard]] Value from_big(Big value);             // Int when it fits
[[nodiscard]] Big to_big(const Value& value);        // Bool, Int, BigInt
[[nodiscard]] double to_double(const Value& value);  // any number; beyond double's range: infinity

enum class Operator : std::uint8_t { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };

// Both are numbers.
[[nodiscard]] Value number_operation(Operator op, const Value& a, const Value& b);
[[nodiscard]] Value negate(const Value& a);
// -1, 0, 1; 2 if one is NaN.
[[nodiscard]] int compare_numbers(const Value& a, const Value& b);

// int(text, base) with Python's rules (blanks around, sign, underscores, prefix for base 0 and its own
// base); Missing when it is not one.
[[nodiscard]] Value parse_int(std::string_view text, int base);
// float(text): Missing when it is not one.
[[nodiscard]] Value parse_float(std::string_view text);
// int(value): towards zero. Runtime failure for NaN and infinity.
[[nodiscard]] Value truncate(double d);
// Decimal digits of Int and BigInt; Runtime failure beyond 4300 digits, as Python.
[[nodiscard]] std::string int_text(const Value& value);

}  // namespace tandem::text::jinja
