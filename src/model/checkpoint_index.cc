#include "model/checkpoint_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/log.h"
#include "model/mapped_file.h"
#include "text/json_problem.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;
namespace dom = simdjson::dom;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::size_t kMaxIndexBytes = 64 << 20;

bool exists_as_entry(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// Folder entries that end like weights, for log lines and for the message when there are none.
std::vector<std::string> weights_like(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    for (const std::string_view ending : {".safetensors", ".bin", ".gguf", ".pt", ".pth"}) {
      if (name.size() > ending.size() && name.ends_with(ending)) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> check_file_name(std::string_view name, std::string_view tensor, const std::string& index) {
  if (name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos && name.ends_with(".safetensors")) {
    return {};
  }
  return fail(ErrorKind::Corrupt,
              fmt::format("{}: tensor {} is said to be in \"{}\"; it must be the name of a .safetensors file in the same "
                          "folder",
                          index, tensor, name));
}

Result<CheckpointIndex> parse_index(const fs::path& path) {
  const std::string where = path.string();
  TANDEM_ASSIGN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kMaxIndexBytes) {
    return fail(ErrorKind::Corrupt,
                fmt::format("{} has {} bytes; an index has at most {}", where, file.bytes().size(), kMaxIndexBytes));
  }
  const simdjson::padded_string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  dom::parser parser;
  dom::object document;
  if (parser.allocate(text.size(), 16) != simdjson::SUCCESS) {
    return fail(ErrorKind::Corrupt, fmt::format("{} cannot be parsed", where));
  }
  if (const auto error = parser.parse(text).get(document)) {
    return fail(ErrorKind::Corrupt, fmt::format("{} is not a JSON object: it {}", where, text::json_problem(error)));
  }
  dom::object map;
  if (document["weight_map"].get(map) != simdjson::SUCCESS) {
    return fail(ErrorKind::Corrupt, fmt::format("{} has no object weight_map", where));
  }
  CheckpointIndex index{.has_index = true};
  std::set<std::string> files;
  for (const dom::key_value_pair entry : map) {
    std::string_view name;
    if (entry.value.get(name) != simdjson::SUCCESS) {
      return fail(ErrorKind::Corrupt, fmt::format("{}: the file of tensor {} is not a string", where, entry.key));
    }
    TANDEM_TRY(check_file_name(name, entry.key, where));
    if (!index.shard.emplace(std::string(entry.key), std::string(name)).second) {
      return fail(ErrorKind::Corrupt, fmt::format("{}: tensor {} is given twice", where, entry.key));
    }
    files.emplace(name);
  }
  if (files.empty()) return fail(ErrorKind::Corrupt, fmt::format("{}: weight_map names no tensor", where));
  index.files.assign(files.begin(), files.end());
  return index;
}

}  // namespace

Result<CheckpointIndex> read_checkpoint_index(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    return fail(ErrorKind::NotFound, fmt::format("{} does not exist", folder.string()));
  }
  if (!fs::is_directory(status)) {
    return fail(ErrorKind::Invalid,
                fmt::format("{} is not a folder; a checkpoint is a folder with config.json and weights", folder.string()));
  }

  CheckpointIndex index;
  if (exists_as_entry(folder / kIndexName)) {
    TANDEM_ASSIGN(index, parse_index(folder / kIndexName));
  } else if (exists_as_entry(folder / kSingleName)) {
    index.files = {std::string(kSingleName)};
  } else {
    const auto found = weights_like(folder);
    return fail(ErrorKind::NotFound,
                fmt::format("{} has neither {} nor {}; weights found instead: {}", folder.string(), kIndexName, kSingleName,
                            found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", "))));
  }

  std::vector<std::string> missing;
  for (const std::string& name : index.files) {
    if (!exists_as_entry(folder / name)) missing.push_back(name);
  }
  if (!missing.empty()) {
    return fail(ErrorKind::NotFound, fmt::format("{}: the index names {} file(s) that are missing: {}", folder.string(),
                                                 missing.size(), fmt::join(missing, ", ")));
  }
  std::vector<std::string> strays = weights_like(folder);
  std::erase_if(strays, [&](const std::string& name) {
    return std::binary_search(index.files.begin(), index.files.end(), name);
  });
  if (!strays.empty()) {
    log_info("{}: ignoring weights that {} does not name: {}", folder.string(),
             index.has_index ? kIndexName : "the checkpoint", fmt::join(strays, ", "));
  }
  return index;
}

}  // namespace tandem::model
