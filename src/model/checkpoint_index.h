#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::model {

// Which files a checkpoint folder consists of.
struct CheckpointIndex {
  std::vector<std::string> files;            // names inside the folder, ascending
  std::map<std::string, std::string> shard;  // tensor -> file; empty without an index file
  bool has_index = false;
};

// Reads FOLDER/model.safetensors.index.json, or without one takes FOLDER/model.safetensors. Logs weights
// files that neither names. Every named file exists as something that can be opened; names with a path
// are refused.
// Errors: NotFound (no such folder, no weights, all missing shards listed), Invalid, Corrupt.
[[nodiscard]] Result<CheckpointIndex> read_checkpoint_index(const std::filesystem::path& folder);

}  // namespace tandem::model
