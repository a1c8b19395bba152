#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace tandem {

// The bytes of a file or a pipe. Thread: any.
// Errors: Io, with the path and errno's text; a folder is one.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace tandem
