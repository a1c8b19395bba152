#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/operations.h"

namespace tandem::text::jinja {

// What "%5.2f" and "{:>8}" have in common: one conversion of a value to text.

inline constexpr std::int64_t kMaxWidth = 1 << 20;

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > = ^, 0: not given
  char sign = '-';
  bool alternate = false;
  bool grouped = false;  // thousands
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

// Digits at `at`, which moves behind them; 0 if there are none. Limit failure beyond kMaxWidth.
[[nodiscard]] std::int64_t parse_number(std::string_view text, std::size_t& at);

[[nodiscard]] std::string padded(Context& context, std::string text, const FormatSpec& spec,
                                 char default_align);
[[nodiscard]] std::string signed_text(bool negative, std::string magnitude, const FormatSpec& spec);
// The magnitude of an Int, Bool or BigInt in type d, x, X, o or b.
[[nodiscard]] std::string int_digits(const Value& value, char type, const FormatSpec& spec, bool& negative);
// With sign, in type e, E, f, F, g or G.
[[nodiscard]] std::string formatted_float(double d, const FormatSpec& spec, char type);
// The first `precision` characters; all if negative.
[[nodiscard]] std::string cut(std::string text, std::int64_t precision);
[[nodiscard]] std::string repr_text(const Value& value);
// A number as a double; Runtime failure for everything else.
[[nodiscard]] double as_real(const Value& value);

}  // namespace tandem::text::jinja
