#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/fabricate.h"
#include "model/fabricate_values.h"
#include "model/tensors.h"

namespace tandem::model {

// One tensor that will be made: where it stands and how its values come about.
struct MadeTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  bool float32 = false;
  enum class Kind : std::uint8_t { Bell, Decay, DtBias } kind = Kind::Bell;
  Bell bell;      // Kind::Bell
  int layer = 0;  // Kind::Decay, Kind::DtBias

  std::int64_t offset = 0;  // in the data of its file

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const { return elements() * (float32 ? 4 : 2); }
};

struct MadeFile {
  std::string name;
  std::vector<MadeTensor> tensors;  // in file order: float32 first, then by name
  std::string header;               // JSON, padded to a multiple of 8
  std::int64_t data_bytes = 0;
};

struct MadeCheckpoint {
  std::vector<MadeFile> files;
  std::string index;  // text of model.safetensors.index.json; empty: no index file
  std::int64_t total_bytes = 0;
};

// Errors: Invalid, see fabricate.
[[nodiscard]] Result<MadeCheckpoint> plan_checkpoint(const FabricateOptions& options);

// A_log and dt_bias of a linear layer's head, fixed-point: together they give the head a half-life
// between 2 and 10,000 tokens, another one in every layer.
[[nodiscard]] std::int64_t made_a_log(int layer, int head, int heads);
[[nodiscard]] std::int64_t made_dt_bias(int layer, int head);

}  // namespace tandem::model
