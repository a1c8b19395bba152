#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace tandem::cli {

// The folder of the model that the user named, or of the bundled one for an empty name: models/tandem-tiny
// beside the program or in a folder above it. Error: NotFound, with the places that were looked at.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::string& named);

}  // namespace tandem::cli
