#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace tandem::cli {

// The folder of the model that the user named, or of the bundled one for an empty name: models/tandem-tiny
// beside the program or in a folder above it. Error: NotFound, with the places that were looked at.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::string& named);

// The folder's own name, also for ".", "models/x/" and the like.
[[nodiscard]] std::string folder_name(const std::filesystem::path& folder);

}  // namespace tandem::cli
