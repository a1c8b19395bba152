#include "model/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "base/log.h"
#include "model/checkpoint_index.h"

namespace tandem::model {
namespace {

bool is_vision(std::string_view name) { return name.starts_with("model.visual."); }
bool is_mtp(std::string_view name) { return name.starts_with("mtp."); }

// "a, b, c and 7 more"
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

struct Found {
  std::size_t file;
  std::size_t tensor;
};
using Catalogue = std::unordered_map<std::string, Found>;

// Every tensor of every file under its name; where two files have it, the index decides.
Result<Catalogue> catalogue(const std::vector<SafetensorsFile>& files, const CheckpointIndex& index) {
  Catalogue all;
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (std::size_t t = 0; t < files[f].tensors.size(); ++t) {
      const std::string& name = files[f].tensors[t].name;
      const auto indexed = index.shard.find(name);
      if (indexed != index.shard.end() && indexed->second != index.files[f]) {
        log_warn("tensor {} is in {} and, by the index, in {}; the latter is used", name, index.files[f],
                 indexed->second);
        continue;
      }
      all.emplace(name, Found{f, t});
    }
  }
  std::vector<std::string> absent;
  for (const auto& [name, file] : index.shard) {
    if (!all.contains(name) && !is_vision(name) && !is_mtp(name)) absent.push_back(fmt::format("{} in {}", name, file));
  }
  if (!absent.empty()) {
    return fail(ErrorKind::Corrupt, fmt::format("the index names {} tensor(s) that their file does not have: {}",
                                                absent.size(), listed(absent)));
  }
  return all;
}

// Text-only exports leave "language_model." out (spec 7, pitfall 7). The one that more names have is meant.
std::string_view prefix_in_use(const Catalogue& all) {
  std::size_t nested = 0, flat = 0;
  for (const auto& [name, found] : all) {
    if (name.starts_with(kNestedPrefix)) {
      ++nested;
    } else if (name.starts_with("model.layers.")) {
      ++flat;
    }
  }
  return flat > nested ? kFlatPrefix : kNestedPrefix;
}

Result<void> check_tensor(const TensorSpec& spec, const StoredTensor& found, const std::filesystem::path& file) {
  const bool good_type = found.dtype == kBf16 || (spec.float32 && found.dtype == kF32);
  if (!good_type || found.shape != spec.shape) {
    return fail(ErrorKind::Corrupt, fmt::format("{}: tensor {}: expected {} {}, found {} {}", file.string(), found.name,
                                                spec.float32 ? "F32 or BF16" : "BF16", shape_text(spec.shape),
                                                found.dtype.name, shape_text(found.shape)));
  }
  const auto alignment = static_cast<std::uintptr_t>(found.dtype.bits / 8);
  if (reinterpret_cast<std::uintptr_t>(found.data.data()) % alignment != 0) {
    return fail(ErrorKind::Corrupt, fmt::format("{}: tensor {} does not begin at a multiple of {} bytes in the file",
                                                file.string(), found.name, alignment));
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder, const Geometry& geometry) {
  TANDEM_ASSIGN(const CheckpointIndex index, read_checkpoint_index(folder));
  Checkpoint checkpoint;
  checkpoint.geometry_ = geometry;
  for (const std::string& name : index.files) {
    TANDEM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(folder / name));
    checkpoint.files_.push_back(std::move(file));
  }
  TANDEM_ASSIGN(Catalogue all, catalogue(checkpoint.files_, index));
  const std::string_view prefix = prefix_in_use(all);

  std::vector<std::string> missing;
  for (const TensorSpec& spec : text_tensors(geometry)) {
    std::string name = spec.name;
    if (name.starts_with(kNestedPrefix)) name.replace(0, kNestedPrefix.size(), prefix);
    const auto found = all.find(name);
    if (found == all.end()) {
      missing.push_back(spec.role == Role::Head
                            ? fmt::format("{} (config.json says tie_word_embeddings false)", name)
                            : name);
      continue;
    }
    const auto [f, t] = found->second;
    const StoredTensor& tensor = checkpoint.files_[f].tensors[t];
    TANDEM_TRY(check_tensor(spec, tensor, checkpoint.files_[f].file.path()));
    checkpoint.places_[{spec.role, spec.layer}] = {f, t};
    checkpoint.text_bytes_ += static_cast<std::int64_t>(tensor.data.size());
    all.erase(found);
  }

  std::size_t vision = 0, mtp = 0;
  std::vector<std::string> unexpected;
  const StoredTensor* spare_head = nullptr;
  for (const auto& [name, found] : all) {
    if (is_vision(name)) {
      ++vision;
    } else if (is_mtp(name)) {
      ++mtp;
    } else if (name == "lm_head.weight" && geometry.tied) {
      spare_head = &checkpoint.files_[found.file].tensors[found.tensor];
    } else {
      unexpected.push_back(name);
    }
  }
  std::sort(unexpected.begin(), unexpected.end());
  if (!missing.empty() || !unexpected.empty()) {
    return fail(ErrorKind::Corrupt,
                fmt::format("{}: {} tensor(s) missing{}{}; {} unexpected{}{}", folder.string(), missing.size(),
                            missing.empty() ? "" : ": ", listed(missing), unexpected.size(),
                            unexpected.empty() ? "" : ": ", listed(unexpected)));
  }
  if (spare_head != nullptr) {
    const StoredTensor& embedding = checkpoint.tensor(Role::Embedding);
    if (spare_head->dtype != embedding.dtype || spare_head->shape != embedding.shape ||
        std::memcmp(spare_head->data.data(), embedding.data.data(), embedding.data.size()) != 0) {
      return fail(ErrorKind::Corrupt,
                  fmt::format("{}: config.json says tie_word_embeddings true, but lm_head.weight differs from {}; set it "
                              "to false to use the head, or remove the head",
                              folder.string(), embedding.name));
    }
    log_info("{}: lm_head.weight equals the embedding; tied", folder.string());
  }
  if (vision + mtp > 0) {
    log_info("{}: skipping {} vision and {} multi-token-prediction tensors", folder.string(), vision, mtp);
  }
  return checkpoint;
}

const StoredTensor& Checkpoint::tensor(Role role, int layer) const {
  const auto found = places_.find({role, layer});
  if (found == places_.end()) std::abort();
  return files_[found->second.file].tensors[found->second.tensor];
}

void Checkpoint::will_need(Role role, int layer) const {
  const auto found = places_.find({role, layer});
  if (found == places_.end()) std::abort();
  const SafetensorsFile& file = files_[found->second.file];
  file.file.will_need(file.tensors[found->second.tensor].data);
}

}  // namespace tandem::model
