#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::model {

enum class LayerKind : std::uint8_t { Linear, Full };

// The numbers of config.json that decide shapes and arithmetic (spec 1.1). Head widths (256; 128 in
// linear attention), convolution width (4) and rotary width (64) are the family's and stand in ops/.
// Plain data: copy it, keep it const. Made by read_geometry or published, which check it.
struct Geometry {
  std::string name;  // "4B", or the folder it was read from; for people
  int hidden = 0;
  int intermediate = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int key_heads = 0;    // linear attention
  int value_heads = 0;  // linear attention; value head j uses key head floor(j / (value_heads / key_heads))
  int vocab = 0;        // rows of the embedding, ids without a token included
  int max_context = 0;  // max_position_embeddings
  bool tied = false;    // the head is the embedding
  float norm_eps = 1e-6f;
  float rope_theta = 1e7f;
  std::vector<LayerKind> layers;
  std::vector<TokenId> eos_ids;  // of config.json and generation_config.json, ascending (spec 5.6)

  [[nodiscard]] int layer_count() const { return static_cast<int>(layers.size()); }
  [[nodiscard]] int count(LayerKind kind) const;
  [[nodiscard]] int full_layers() const { return count(LayerKind::Full); }
  [[nodiscard]] int linear_layers() const { return count(LayerKind::Linear); }
  [[nodiscard]] int query_width() const;       // query_heads * 256
  [[nodiscard]] int kv_width() const;          // kv_heads * 256
  [[nodiscard]] int key_width() const;         // K of the specification
  [[nodiscard]] int value_width() const;       // V of the specification
  [[nodiscard]] int conv_channels() const;     // C of the specification
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

// Every layer_interval-th layer is full attention, the others linear.
[[nodiscard]] std::vector<LayerKind> layer_pattern(int layers, int full_attention_interval);

// One of kPublishedSizes. Error: NotFound, listing them.
inline constexpr std::string_view kPublishedSizes[] = {"0.8B", "2B", "4B", "9B", "27B"};
[[nodiscard]] Result<Geometry> published(std::string_view size);

// Divisibility and ranges that the architecture itself asks for; `where` opens the message.
// Errors: Invalid or Unsupported, with field, value and what works.
[[nodiscard]] Result<void> check_geometry(const Geometry& geometry, std::string_view where);

// From the text of a config.json, nested (text_config) or flat; `file` is for messages.
// Errors: Corrupt (not JSON), Invalid (a bad value), Unsupported (another architecture, MoE, quantised
// weights, an option that this forward pass does not have), each with file, field, value and what works.
[[nodiscard]] Result<Geometry> parse_geometry(std::string_view config_json, std::string_view file);

// From FOLDER/config.json and, if present, FOLDER/generation_config.json (its eos ids join). Reads no
// weights. Errors: as parse_geometry; NotFound or Io with the path.
[[nodiscard]] Result<Geometry> read_geometry(const std::filesystem::path& folder);

}  // namespace tandem::model
