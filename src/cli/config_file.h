#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

namespace tandem::cli {

// Adds `--config FILE`: flags of `command` from a TOML file, `name = value` for `--name value` and an array for a flag
// that takes several. The command line and the environment win. Call it when all other flags are there.
//
// Refused while the command line is parsed, with file and line: a file that cannot be read or is no TOML, a name that
// is no flag of the command, a value that the flag does not take.
void add_config_flag(CLI::App& command);

// What add_config_flag does with the file, once everything else is parsed. Throws CLI::ParseError.
void apply_config(CLI::App& command, const std::filesystem::path& file);

}  // namespace tandem::cli
