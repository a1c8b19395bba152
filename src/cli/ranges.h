#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace tandem::cli {

// Checks of flags' values that say what works. Unlike CLI11's own they take neither NaN nor a number with something
// behind it.
[[nodiscard]] CLI::Validator whole_number(std::int64_t least, std::int64_t most);
[[nodiscard]] CLI::Validator number(double least, double most);
// Refuses a value that is there and empty, as of an unset variable in a script: it would pass for the default.
[[nodiscard]] CLI::Validator not_empty();
// Seconds of a deadline: from a millisecond to eleven days, which the clock's nanoseconds can hold.
[[nodiscard]] CLI::Validator deadline_seconds();

}  // namespace tandem::cli
