#include "cli/fixture_checkpoint.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/model_folder.h"

namespace tandem::cli {

namespace fs = std::filesystem;

Result<fs::path> fixture_checkpoint(const gates::FixtureFile& file, const std::string& model, const fs::path& work) {
  if (!model.empty() || file.fabricate.empty()) return find_model(model);
  // NAME-long is about the checkpoint of NAME (gates/fixtures/README.md).
  constexpr std::string_view kLong = "-long";
  std::string made_for = file.fixture.name;
  if (made_for.ends_with(kLong)) made_for.resize(made_for.size() - kLong.size());
  const fs::path folder = work / made_for;
  std::error_code ignored;
  if (fs::exists(folder / "config.json", ignored)) return folder;
  fs::create_directories(work, ignored);
  CLI::App app;
  Action fabricate;
  add_fabricate(app, fabricate);
  const std::size_t space = file.fabricate.find(' ');
  const std::string size = file.fabricate.substr(0, space), rest = space == std::string::npos ? "" : file.fabricate.substr(space);
  try {
    app.parse("fabricate " + size + " '" + folder.string() + "'" + rest, false);
  } catch (const CLI::Error& error) {
    return fail(ErrorKind::Corrupt, fmt::format("[fixture] {}: fabricate '{}': {}", file.fixture.name, file.fabricate, error.what()));
  }
  const Result<int> made = fabricate();
  if (!made) return fail(made.error());
  return folder;
}

}  // namespace tandem::cli
