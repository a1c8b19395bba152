#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "gates/hf_gate.h"

namespace tandem::gates {

// A fixture file and how to come by the checkpoint it is about (gates/fixtures/README.md).
struct FixtureFile {
  GateFixture fixture;
  std::string fabricate;  // arguments of `tandem fabricate` without the folder; empty: a stored checkpoint
};

// Errors: Io, NotFound; Corrupt with file, place and what is wrong.
[[nodiscard]] Result<FixtureFile> read_fixture(const std::filesystem::path& file);

}  // namespace tandem::gates
