#pragma once

#include <string_view>

namespace tandem {

// Of the program, as CMakeLists.txt's project() says it: "1.2.3". Thread: any.
[[nodiscard]] std::string_view version();

}  // namespace tandem
