#include "cli/byte_size.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace tandem::cli {

Result<std::int64_t> parse_bytes(std::string_view text, std::string_view flag) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(after, static_cast<std::size_t>(end - after));
  if (unit.ends_with("iB"))
    unit.remove_suffix(2);
  else if (unit.ends_with('B'))
    unit.remove_suffix(1);
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t place = unit.empty() ? 0 : kUnits.find(unit) + 1;
  const double bytes = std::ldexp(number, static_cast<int>(10 * place));
  if (error != std::errc() || unit.size() > 1 || (place == 0 && !unit.empty()) || !(bytes >= 0) || bytes > 9e18)
    return fail(ErrorKind::Invalid, fmt::format("[{}] '{}' is not a size; write bytes, or a number with K, M, G or T, as in 80G",
                                                flag, text),
                std::string(flag));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace tandem::cli
