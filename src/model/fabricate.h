#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/result.h"
#include "model/geometry.h"

namespace tandem::model {

enum class FabricatedLayout : std::uint8_t {
  TextOnly,   // flat config, Qwen3_5ForCausalLM, names "model.*", one file or shards with an index
  Published,  // nested config, vision and multi-token-prediction tensors, the published shard names and index
};

struct FabricateOptions {
  Geometry geometry;             // eos_ids are replaced by the made tokenizer's <|endoftext|>
  std::filesystem::path folder;  // made; must not exist or be empty
  FabricatedLayout layout = FabricatedLayout::TextOnly;  // Published: only for a published geometry
  std::uint64_t seed = 1;
  std::int64_t shard_bytes = std::int64_t{5} << 30;      // a new shard begins before this would be passed
  int spread_percent = 0;                                // deviation of the logits; 0: by the vocabulary, so that the gate has power
  int threads = 0;                                       // 0: one per core
};

// Bytes of weights written, and of all. Called from the writing threads, one at a time.
using FabricateProgress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

// Writes a checkpoint in Hugging Face layout that nobody trained: config.json, weights, index (if more
// than one shard, or published), tokenizer.json whose vocabulary covers every id, tokenizer_config.json,
// chat_template.jinja. config.json comes last: a folder that has one is complete.
//
// The same options give the same bytes on every machine: weights come from integer arithmetic alone. They
// are scaled so that the Hugging Face gate has power (tp-contract): decays with half-lives from 2 to 10,000
// tokens over the heads, norms and A_log that bf16 does not represent, next-token distributions neither
// flat nor certain.
//
// Thread: any; starts its own and joins them. Speed: the disk's.
// Errors: Invalid (folder not empty, vocabulary below 512, published layout of another geometry),
// Capacity (disk too small, with bytes), Io.
[[nodiscard]] Result<void> fabricate(const FabricateOptions& options, const FabricateProgress& progress = {});

// Bytes of weights that fabricate would write.
[[nodiscard]] Result<std::int64_t> fabricated_bytes(const FabricateOptions& options);

}  // namespace tandem::model
