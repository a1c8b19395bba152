#include "cli/geometry_argument.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/model_folder.h"

namespace tandem::cli {

Result<model::Geometry> geometry_argument(const std::string& named) {
  if (std::ranges::find(model::kPublishedSizes, named) != std::end(model::kPublishedSizes)) return model::published(named);
  std::error_code ignored;
  if (!named.empty() && !std::filesystem::exists(named, ignored))
    return fail(ErrorKind::NotFound, fmt::format("[model] '{}' is neither a folder nor one of the published sizes {}", named,
                                                 fmt::join(model::kPublishedSizes, ", ")),
                "model");
  TANDEM_ASSIGN(const std::filesystem::path folder, find_model(named));
  return model::read_geometry(folder);
}

}  // namespace tandem::cli
