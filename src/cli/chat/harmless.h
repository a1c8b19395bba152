#pragma once

#include <string>
#include <string_view>

namespace tandem::cli::chat {

// Text from elsewhere as a terminal may show it: valid UTF-8 without controls but line breaks and tabs, so
// that it cannot move the cursor, change the title or answer for the user. Thread: any.
[[nodiscard]] std::string harmless(std::string_view text);

}  // namespace tandem::cli::chat
