#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "gates/fixture.h"

namespace tandem::cli {

// The folder of the checkpoint that a fixture is about: `model` if one is given, the stored one, or the fabricated one,
// which is made in `work` by whoever asks first and kept there.
// Errors: those of finding or fabricating it; Corrupt if the fixture's arguments are none of `tandem fabricate`.
[[nodiscard]] Result<std::filesystem::path> fixture_checkpoint(const gates::FixtureFile& file, const std::string& model,
                                                               const std::filesystem::path& work);

}  // namespace tandem::cli
