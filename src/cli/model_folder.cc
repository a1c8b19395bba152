#include "cli/model_folder.h"

#include <fmt/format.h>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kBundled[] = "models/tandem-tiny";

}  // namespace

Result<fs::path> find_model(const std::string& named) {
  std::error_code ignored;
  if (!named.empty()) {
    const fs::path folder(named);
    if (fs::is_directory(folder, ignored)) return folder;
    if (fs::exists(folder, ignored))
      return fail(ErrorKind::NotFound, fmt::format("[model] '{}' is a file; name the folder that holds config.json", named), "model");
    return fail(ErrorKind::NotFound,
                fmt::format("[model] there is no folder '{}'; give a folder with config.json, tokenizer.json and the "
                            "safetensors files, or no model for the bundled one",
                            named),
                "model");
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path above = program.parent_path(); !above.empty(); above = above.parent_path()) {
    if (fs::is_regular_file(above / kBundled / "config.json", ignored)) return above / kBundled;
    if (above == above.root_path()) break;
  }
  return fail(ErrorKind::NotFound, fmt::format("[model] no model was named, and the bundled one ({}) is not beside {} or above it",
                                               kBundled, program.string()));
}

std::string folder_name(const std::filesystem::path& folder) {
  const std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace tandem::cli
