#pragma once

#include <string>

#include "base/result.h"
#include "model/geometry.h"

namespace tandem::cli {

// A published size ("4B") or a folder with config.json. Error: NotFound with what works.
[[nodiscard]] Result<model::Geometry> geometry_argument(const std::string& named);

}  // namespace tandem::cli
