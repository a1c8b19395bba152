#include "cli/ranges.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

namespace tandem::cli {
namespace {

template <class Number>
CLI::Validator within(Number least, Number most) {
  const std::string range = fmt::format("{} to {}", least, most);
  return CLI::Validator(
      [least, most, range](std::string& text) -> std::string {
        Number value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        // A NaN is in no range.
        if (error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most) return {};
        return fmt::format("'{}'; {} works", text, range);
      },
      range);
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) { return within(least, most); }
CLI::Validator number(double least, double most) { return within(least, most); }
CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) -> std::string { return text.empty() ? "the value is empty; leave the flag out for its default" : ""; }, "");
}
CLI::Validator deadline_seconds() { return number(0.001, 1e6); }

}  // namespace tandem::cli
