#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/geometry.h"
#include "model/safetensors.h"
#include "model/tensors.h"

namespace tandem::model {

// The text tensors of a checkpoint folder, mapped and checked against a geometry: every needed tensor is
// there once, with the right shape and type, and there is no other but the families that are skipped by
// name (model.visual.*, mtp.*). Nothing is copied; the bytes live as long as the object.
//
// Rules beyond spec 2.3: model.safetensors.index.json decides if present, else model.safetensors is the
// whole checkpoint. Other *.safetensors files are ignored with one log line. A tensor that stands in two
// shards is read from the one that the index names, with a warning. tie_word_embeddings true with an
// lm_head.weight that differs from the embedding is refused, since one of the two must be wrong; an equal
// one is accepted. False without lm_head.weight is refused.
//
// Thread: any, read-only after `open`. Ranks share one Checkpoint; it outlives their backends.
class Checkpoint {
 public:
  // Errors: NotFound, Invalid, Io, Corrupt, each naming folder or file, tensor, expected and found.
  // Nothing is read but headers, and the head of a tied checkpoint that has one.
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& folder, const Geometry& geometry);

  // A tensor that the geometry asks for (text_tensors); asking for another is a bug and aborts.
  [[nodiscard]] const StoredTensor& tensor(Role role, int layer = -1) const;

  // Starts reading this tensor from the disk in the background.
  void will_need(Role role, int layer = -1) const;

  [[nodiscard]] std::int64_t text_bytes() const { return text_bytes_; }  // of the tensors in use
  [[nodiscard]] const Geometry& geometry() const { return geometry_; }

 private:
  struct Place {
    std::size_t file;
    std::size_t tensor;
  };

  Checkpoint() = default;

  Geometry geometry_;
  std::vector<SafetensorsFile> files_;
  std::map<std::pair<Role, int>, Place> places_;
  std::int64_t text_bytes_ = 0;
};

}  // namespace tandem::model
