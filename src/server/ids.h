#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::server {

// Numbers that nobody can foresee or repeat, for ids and for requests without a seed. Thread: any.
[[nodiscard]] std::uint64_t random_number();

// `prefix` and 24 characters of a-z0-9, different every time.
[[nodiscard]] std::string new_id(std::string_view prefix);

}  // namespace tandem::server
