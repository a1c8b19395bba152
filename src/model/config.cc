// config.json and generation_config.json to Geometry, with the loader rules of spec 1.1: which level a
// field is read from, what its absence means, and which values this forward pass refuses.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "base/read_file.h"
#include "model/geometry.h"
#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {
namespace {

namespace json = boost::json;
constexpr FileLimits kConfigLimits = {.most_bytes = 4 << 20};

Result<json::object> parse_object(std::string_view text, std::string_view file) {
  json::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) return fail(ErrorKind::Corrupt, fmt::format("{} is not JSON in UTF-8", file));
  if (!value.is_object()) return fail(ErrorKind::Corrupt, fmt::format("{} is not a JSON object", file));
  return std::move(value.as_object());
}

std::string shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// The members of one object; null counts as absent, as Hugging Face treats it.
class Fields {
 public:
  Fields(const json::object& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[nodiscard]] const json::value* find(std::string_view name) const {
    const json::value* value = object_.if_contains(json::string_view(name.data(), name.size()));
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  [[nodiscard]] tl::unexpected<Error> bad(std::string_view name, const json::value& value,
                                          std::string_view works, ErrorKind kind = ErrorKind::Invalid) const {
    return fail(kind, fmt::format("{}: {} = {}; {}", where_, name, shown(value), works), std::string(name));
  }

  [[nodiscard]] Result<int> integer(std::string_view name, std::optional<int> absent = std::nullopt) const {
    const json::value* value = find(name);
    if (value == nullptr) {
      if (absent) return *absent;
      return fail(ErrorKind::Invalid, fmt::format("{}: {} is missing; {}", where_, name, kWanted), std::string(name));
    }
    json::error_code error;
    const int number = value->is_double() ? 0 : value->to_number<int>(error);
    if (value->is_double() || error || number < 1) return bad(name, *value, kWanted);
    return number;
  }

  [[nodiscard]] Result<double> real(std::string_view name, double absent) const {
    const json::value* value = find(name);
    if (value == nullptr) return absent;
    if (!value->is_number()) return bad(name, *value, "it must be a number");
    return value->to_number<double>();
  }

  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view name) const {
    const json::value* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_bool()) return bad(name, *value, "it must be true or false");
    return value->as_bool();
  }

  // Absent, or one of `accepted`.
  [[nodiscard]] Result<void> one_of(std::string_view name, std::initializer_list<std::string_view> accepted) const {
    const json::value* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) {
      const json::string_view text = value->as_string();
      for (const std::string_view word : accepted) {
        if (word == std::string_view(text.data(), text.size())) return {};
      }
    }
    return bad(name, *value, fmt::format("this server runs {}", fmt::join(accepted, " or ")), ErrorKind::Unsupported);
  }

  [[nodiscard]] Result<void> must_equal(std::string_view name, int wanted) const {
    TANDEM_ASSIGN(const int found, integer(name, wanted));
    if (found != wanted) {
      return bad(name, *find(name), fmt::format("this server runs {}", wanted), ErrorKind::Unsupported);
    }
    return {};
  }

  [[nodiscard]] const json::object& object() const { return object_; }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  static constexpr std::string_view kWanted = "it must be an integer from 1 to 2147483647";

  const json::object& object_;
  std::string where_;
};

Result<void> add_eos(const Fields& fields, std::vector<TokenId>& ids) {
  const json::value* value = fields.find("eos_token_id");
  if (value == nullptr) return {};
  const auto one = [&](const json::value& item) -> Result<void> {
    json::error_code error;
    const int id = item.is_double() || !item.is_number() ? -1 : item.to_number<int>(error);
    if (error || id < 0) return fields.bad("eos_token_id", *value, "it must be a token id or a list of token ids");
    ids.push_back(id);
    return {};
  };
  if (!value->is_array()) return one(*value);
  for (const json::value& item : value->as_array()) TANDEM_TRY(one(item));
  return {};
}

void sort_unique(std::vector<TokenId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

Result<void> check_architecture(const Fields& root) {
  TANDEM_TRY(root.one_of("model_type", {"qwen3_5", "qwen3_5_text"}));
  const json::value* architectures = root.find("architectures");
  if (architectures == nullptr) {
    if (root.find("model_type") != nullptr) return {};
    return fail(ErrorKind::Unsupported,
                fmt::format("{}: neither model_type nor architectures is given; this server runs "
                            "Qwen3_5ForConditionalGeneration and Qwen3_5ForCausalLM",
                            root.where()));
  }
  if (architectures->is_array()) {
    for (const json::value& name : architectures->as_array()) {
      if (name == "Qwen3_5ForConditionalGeneration" || name == "Qwen3_5ForCausalLM") return {};
    }
  }
  return root.bad("architectures", *architectures,
                  "this server runs Qwen3_5ForConditionalGeneration and Qwen3_5ForCausalLM", ErrorKind::Unsupported);
}

Result<void> check_unquantized(const Fields& fields) {
  for (const std::string_view name : {"quantization_config", "compression_config"}) {
    if (fields.find(name) != nullptr) {
      return fail(ErrorKind::Unsupported, fmt::format("{}: {} is given; this server runs bf16 checkpoints", fields.where(), name),
                  std::string(name));
    }
  }
  return {};
}

// Options that change the arithmetic and that this forward pass does not have.
Result<void> check_options(const Fields& text) {
  TANDEM_TRY(text.one_of("model_type", {"qwen3_5", "qwen3_5_text"}));
  TANDEM_TRY(text.one_of("hidden_act", {"silu"}));
  TANDEM_TRY(text.one_of("output_gate_type", {"silu", "swish"}));
  TANDEM_TRY(text.one_of("dtype", {"bfloat16"}));
  TANDEM_TRY(text.one_of("torch_dtype", {"bfloat16"}));
  TANDEM_TRY(text.must_equal("head_dim", ops::kHeadDim));
  TANDEM_TRY(text.must_equal("linear_key_head_dim", ops::kDeltaHeadDim));
  TANDEM_TRY(text.must_equal("linear_value_head_dim", ops::kDeltaHeadDim));
  TANDEM_TRY(text.must_equal("linear_conv_kernel_dim", ops::kConvTaps));
  TANDEM_ASSIGN(const auto bias, text.boolean("attention_bias"));
  if (bias.value_or(false)) {
    return text.bad("attention_bias", true, "this server runs models without biases", ErrorKind::Unsupported);
  }
  TANDEM_ASSIGN(const auto gate, text.boolean("attn_output_gate"));
  if (!gate.value_or(true)) {
    return text.bad("attn_output_gate", false, "the family's attention is always gated", ErrorKind::Unsupported);
  }
  for (const std::string_view name : {"num_experts", "num_local_experts", "moe_intermediate_size"}) {
    if (const json::value* value = text.find(name)) {
      return text.bad(name, *value, "this server runs the dense sizes, not the mixtures of experts",
                      ErrorKind::Unsupported);
    }
  }
  if (const json::value* only = text.find("mlp_only_layers"); only && !(only->is_array() && only->as_array().empty())) {
    return text.bad("mlp_only_layers", *only, "this server runs []", ErrorKind::Unsupported);
  }
  return {};
}

Result<std::vector<LayerKind>> read_layers(const Fields& text) {
  TANDEM_ASSIGN(const int layers, text.integer("num_hidden_layers"));
  if (layers > 1024) return text.bad("num_hidden_layers", layers, "it must be at most 1024");
  const json::value* types = text.find("layer_types");
  if (types == nullptr) {
    TANDEM_ASSIGN(const int interval, text.integer("full_attention_interval", 4));
    return layer_pattern(layers, interval);
  }
  if (!types->is_array()) return text.bad("layer_types", *types, "it must be a list with one word per layer");
  const json::array& list = types->as_array();
  if (list.size() != static_cast<std::size_t>(layers)) {
    return fail(ErrorKind::Invalid, fmt::format("{}: layer_types has {} entries, num_hidden_layers = {}; they must agree",
                                                text.where(), list.size(), layers));
  }
  std::vector<LayerKind> kinds;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == "linear_attention") {
      kinds.push_back(LayerKind::Linear);
    } else if (list[i] == "full_attention") {
      kinds.push_back(LayerKind::Full);
    } else {
      return text.bad(fmt::format("layer_types[{}]", i), list[i], "it must be linear_attention or full_attention",
                      ErrorKind::Unsupported);
    }
  }
  return kinds;
}

// rope_parameters (or the older rope_scaling, which must then say the same thing).
Result<float> read_rope(const Fields& text) {
  constexpr double kPartial = static_cast<double>(ops::kRotaryDim) / ops::kHeadDim;
  if (const json::value* scaling = text.find("rope_scaling")) {
    if (!scaling->is_object()) return text.bad("rope_scaling", *scaling, "it must be an object or null");
    const Fields fields(scaling->as_object(), text.where() + ".rope_scaling");
    TANDEM_TRY(fields.one_of("rope_type", {"default"}));
    TANDEM_TRY(fields.one_of("type", {"default"}));
  }
  TANDEM_ASSIGN(double theta, text.real("rope_theta", 1e7));
  TANDEM_ASSIGN(double partial, text.real("partial_rotary_factor", kPartial));
  if (const json::value* parameters = text.find("rope_parameters")) {
    if (!parameters->is_object()) return text.bad("rope_parameters", *parameters, "it must be an object");
    const Fields rope(parameters->as_object(), text.where() + ".rope_parameters");
    TANDEM_TRY(rope.one_of("rope_type", {"default"}));
    TANDEM_TRY(rope.one_of("type", {"default"}));
    TANDEM_ASSIGN(theta, rope.real("rope_theta", theta));
    TANDEM_ASSIGN(partial, rope.real("partial_rotary_factor", partial));
    // The three sections only matter for images; for text all positions are equal. Their sum must still
    // be the number of rotary pairs, else the file describes another rotation.
    if (const json::value* section = rope.find("mrope_section")) {
      std::int64_t pairs = 0;
      bool good = section->is_array();
      if (good) {
        for (const json::value& item : section->as_array()) {
          good = good && item.is_int64() && item.as_int64() >= 0 && item.as_int64() <= ops::kRotaryDim;
          if (good) pairs += item.as_int64();
        }
      }
      if (!good || pairs != ops::kRotaryDim / 2) {
        return rope.bad("mrope_section", *section, fmt::format("its parts must add up to {}", ops::kRotaryDim / 2),
                        ErrorKind::Unsupported);
      }
    }
  }
  if (partial != kPartial) {
    return fail(ErrorKind::Unsupported, fmt::format("{}: partial_rotary_factor = {}; this server runs {}", text.where(),
                                                    partial, kPartial));
  }
  return static_cast<float>(theta);
}

}  // namespace

Result<Geometry> parse_geometry(std::string_view config_json, std::string_view file) {
  TANDEM_ASSIGN(const json::object document, parse_object(config_json, file));
  const Fields root(document, std::string(file));
  TANDEM_TRY(check_architecture(root));
  TANDEM_TRY(check_unquantized(root));
  const json::value* nested = root.find("text_config");
  if (nested != nullptr && !nested->is_object()) return root.bad("text_config", *nested, "it must be an object");
  const Fields text(nested ? nested->as_object() : document,
                    nested ? fmt::format("{}: text_config", file) : std::string(file));
  TANDEM_TRY(check_unquantized(text));
  TANDEM_TRY(check_options(text));

  Geometry g;
  g.name = std::string(file);
  TANDEM_ASSIGN(g.layers, read_layers(text));
  TANDEM_ASSIGN(g.hidden, text.integer("hidden_size"));
  TANDEM_ASSIGN(g.intermediate, text.integer("intermediate_size"));
  TANDEM_ASSIGN(g.query_heads, text.integer("num_attention_heads"));
  TANDEM_ASSIGN(g.kv_heads, text.integer("num_key_value_heads"));
  TANDEM_ASSIGN(g.key_heads, text.integer("linear_num_key_heads"));
  TANDEM_ASSIGN(g.value_heads, text.integer("linear_num_value_heads"));
  TANDEM_ASSIGN(g.vocab, text.integer("vocab_size"));
  TANDEM_ASSIGN(g.max_context, text.integer("max_position_embeddings"));
  TANDEM_ASSIGN(const double eps, text.real("rms_norm_eps", 1e-6));
  g.norm_eps = static_cast<float>(eps);
  TANDEM_ASSIGN(g.rope_theta, read_rope(text));
  // 9B and 27B say it only at the root; where both levels speak, the text model's own word counts.
  TANDEM_ASSIGN(const auto tied_text, text.boolean("tie_word_embeddings"));
  TANDEM_ASSIGN(const auto tied_root, root.boolean("tie_word_embeddings"));
  g.tied = tied_text ? *tied_text : tied_root.value_or(false);
  TANDEM_TRY(add_eos(text, g.eos_ids));
  if (nested) TANDEM_TRY(add_eos(root, g.eos_ids));
  sort_unique(g.eos_ids);
  TANDEM_TRY(check_geometry(g, file));
  return g;
}

Result<Geometry> read_geometry(const std::filesystem::path& folder) {
  const std::filesystem::path config = folder / "config.json";
  TANDEM_ASSIGN(const std::string text, read_file(config, kConfigLimits));
  TANDEM_ASSIGN(Geometry geometry, parse_geometry(text, config.string()));
  const std::filesystem::path name = folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  geometry.name = name.string();

  const std::filesystem::path generation = folder / "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(generation, error))) {
    TANDEM_ASSIGN(const std::string more, read_file(generation, kConfigLimits));
    TANDEM_ASSIGN(const json::object document, parse_object(more, generation.string()));
    TANDEM_TRY(add_eos(Fields(document, generation.string()), geometry.eos_ids));
    sort_unique(geometry.eos_ids);
    TANDEM_TRY(check_geometry(geometry, generation.string()));
  }
  return geometry;
}

}  // namespace tandem::model
