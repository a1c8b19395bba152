#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::cli {

// "512M", "80G", "1.5G", "1073741824": bytes, with K, M, G, T as powers of 1024 (an optional "B" or "iB"
// follows). Error: Invalid, with the flag, the text and what works.
[[nodiscard]] Result<std::int64_t> parse_bytes(std::string_view text, std::string_view flag);

}  // namespace tandem::cli
