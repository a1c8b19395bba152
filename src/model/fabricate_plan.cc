// Which tensors a fabricated checkpoint has, how they are scaled, and which file each stands in.
//
// Scales. Every projection keeps the size of what it reads (deviation 1/sqrt(inputs)). The first layer
// writes at full strength, so that the residual is not the embedding of the last token, which a tied head
// would recognise; later layers write weaker by 1/sqrt(layers) and a little more, so that rounding errors
// do not grow with depth. The head spreads logits enough for a favourite without certainty.

#include "model/fabricate_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {
namespace {

constexpr std::int64_t percent(std::int64_t hundredths) { return kFixedOne / 100 * hundredths; }

// a * b of fixed-point numbers below 2.
std::int64_t times(std::int64_t a, std::int64_t b) { return static_cast<std::int64_t>((static_cast<__int128>(a) * b) >> kFixedBits); }

// In percent. Measured with Hugging Face's bf16 error against its float32 (the gate's floor) on 8 to 32 layers.
constexpr std::int64_t kFirstLayer = 150;
constexpr std::int64_t kDeeperLayers = 60;
constexpr std::int64_t kAttentionWrites = 300;  // an average over many values is small
constexpr std::int64_t kDeltaWrites = 100;
constexpr std::int64_t kMlpWrites = 160;  // SwiGLU halves the inner values

// The spread of the logits: the favourite of many ids must stand out more, and a spread larger than needed
// only makes bf16's steps between logits coarser. With 248,320 ids 3.35 leaves more than half of the positions
// a favourite of 0.05 to 0.9.
std::int64_t logit_spread(const Geometry& g) {
  const std::int64_t bits = std::bit_width(static_cast<std::uint32_t>(g.vocab)) - 1;
  return 105 + 10 * std::min<std::int64_t>(bits, 12) + 22 * std::max<std::int64_t>(bits - 12, 0);
}

std::int64_t writes(const Geometry& g, int layer, std::int64_t strength_percent, std::int64_t inputs) {
  const std::int64_t full = fixed_inverse_root(inputs) * strength_percent / 100;
  if (layer == 0) return full * kFirstLayer / 100;
  return times(full, fixed_inverse_root(g.layer_count())) * kDeeperLayers / 100;
}

Bell bell_of(const FabricateOptions& options, const TensorSpec& spec) {
  const Geometry& g = options.geometry;
  const std::int64_t reads = fixed_inverse_root(spec.cols());
  switch (spec.role) {
    case Role::Embedding:
    case Role::Head: return {0, reads * (options.spread_percent > 0 ? options.spread_percent : logit_spread(g)) / 100};
    case Role::FinalNorm:
    case Role::InputNorm:
    case Role::PostNorm: return {0, percent(10)};
    case Role::QueryNorm:
    case Role::KeyNorm: return {percent(40), percent(10)};
    case Role::GatedNorm: return {kFixedOne, percent(20)};
    case Role::Conv: return {percent(20), percent(45)};
    case Role::InA: return {0, reads / 2};
    case Role::AttentionOut: return {0, writes(g, spec.layer, kAttentionWrites, spec.cols())};
    case Role::DeltaOut: return {0, writes(g, spec.layer, kDeltaWrites, spec.cols())};
    case Role::Down: return {0, writes(g, spec.layer, kMlpWrites, spec.cols())};
    default: return {0, reads};
  }
}

std::vector<MadeTensor> text_part(const FabricateOptions& options) {
  std::vector<MadeTensor> made;
  for (const TensorSpec& spec : text_tensors(options.geometry)) {
    MadeTensor tensor{.name = spec.name, .shape = spec.shape, .float32 = spec.float32, .layer = spec.layer};
    if (options.layout == FabricatedLayout::TextOnly && tensor.name.starts_with(kNestedPrefix)) {
      tensor.name.replace(0, kNestedPrefix.size(), kFlatPrefix);
    }
    if (spec.role == Role::ALog) {
      tensor.kind = MadeTensor::Kind::Decay;
    } else if (spec.role == Role::DtBias) {
      tensor.kind = MadeTensor::Kind::DtBias;
    } else {
      tensor.bell = bell_of(options, spec);
    }
    made.push_back(std::move(tensor));
  }
  return made;
}

void add_mtp(const Geometry& g, std::vector<MadeTensor>& made) {
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    const std::int64_t inputs = shape.size() == 1 ? 100 : shape.back();
    made.push_back({.name = "mtp." + name, .shape = std::move(shape), .bell = {0, fixed_inverse_root(inputs)}});
  };
  add("fc.weight", {g.hidden, 2 * g.hidden});
  for (const char* norm : {"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"}) {
    add(fmt::format("{}.weight", norm), {g.hidden});
  }
  // One full-attention decoder layer.
  Geometry one = g;
  one.layers = {LayerKind::Full};
  for (const TensorSpec& spec : text_tensors(one)) {
    if (spec.layer == 0) add(spec.name.substr(kNestedPrefix.size()), spec.shape);
  }
}

struct Vision {
  std::string_view size;
  std::int64_t depth, hidden, intermediate, out;
};
constexpr Vision kVision[] = {{"0.8B", 12, 768, 3072, 1024},
                              {"2B", 24, 1024, 4096, 2048},
                              {"4B", 24, 1024, 4096, 2560},
                              {"9B", 27, 1152, 4304, 4096},
                              {"27B", 27, 1152, 4304, 5120}};

void add_vision(const Vision& v, std::vector<MadeTensor>& made) {
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    made.push_back({.name = "model.visual." + name, .shape = std::move(shape), .bell = {0, percent(2)}});
  };
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {v.hidden});
    add(name + ".bias", {v.hidden});
  };
  add("patch_embed.proj.weight", {v.hidden, 3, 2, 16, 16});
  add("patch_embed.proj.bias", {v.hidden});
  add("pos_embed.weight", {2304, v.hidden});
  for (std::int64_t i = 0; i < v.depth; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    norm(block + "norm1");
    norm(block + "norm2");
    linear(block + "attn.qkv", 3 * v.hidden, v.hidden);
    linear(block + "attn.proj", v.hidden, v.hidden);
    linear(block + "mlp.linear_fc1", v.intermediate, v.hidden);
    linear(block + "mlp.linear_fc2", v.hidden, v.intermediate);
  }
  norm("merger.norm");
  linear("merger.linear_fc1", 4 * v.hidden, 4 * v.hidden);
  linear("merger.linear_fc2", v.out, 4 * v.hidden);
}

// Published files have no __metadata__; text-only ones say where they could come from, as libraries expect.
std::string header_of(const MadeFile& file, FabricatedLayout layout) {
  std::string json = layout == FabricatedLayout::TextOnly ? R"({"__metadata__":{"format":"pt"},)" : "{";
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const MadeTensor& t = file.tensors[i];
    std::string shape = shape_text(t.shape);
    std::erase(shape, ' ');
    json += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", i == 0 ? "" : ",", t.name,
                        t.float32 ? "F32" : "BF16", shape, t.offset, t.offset + t.bytes());
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

std::string index_of(const MadeCheckpoint& checkpoint) {
  std::map<std::string_view, std::string_view> map;
  for (const MadeFile& file : checkpoint.files) {
    for (const MadeTensor& tensor : file.tensors) map.emplace(tensor.name, file.name);
  }
  std::string text = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", checkpoint.total_bytes);
  bool first = true;
  for (const auto& [tensor, file] : map) {
    text += fmt::format("{}\n    \"{}\": \"{}\"", first ? "" : ",", tensor, file);
    first = false;
  }
  return text + "\n  }\n}";
}

}  // namespace

std::int64_t MadeTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t n : shape) product *= n;
  return product;
}

std::int64_t made_dt_bias(int layer, int head) { return (std::int64_t{(layer + head) % 4} - 2) * kFixedOne; }

std::int64_t made_a_log(int layer, int head, int heads) {
  // half-life = ln 2 / (exp(A_log) softplus(dt_bias)), so
  // A_log = ln ln 2 - ln half-life - ln softplus(dt_bias); the logarithms in units of 10^-9.
  constexpr std::int64_t kLnLn2 = -366512921;
  constexpr std::int64_t kShortest = 693147181, kLongest = 9210340372;                            // ln 2, ln 10000
  constexpr std::int64_t kLnSoftplus[] = {-2064135195, -1160716375, -366512921, 272513881};  // of -2, -1, 0, 1
  // The odd factor spreads short and long lives over neighbouring heads, differently in each layer.
  const std::int64_t place = heads == 1 ? layer % 2 : (std::int64_t{head} * 5 + std::int64_t{layer} * 3) % heads;
  const std::int64_t steps = std::max(heads - 1, 1);
  const std::int64_t ln_life = kShortest + (kLongest - kShortest) * place / steps;
  const std::int64_t a_log = kLnLn2 - ln_life - kLnSoftplus[(layer + head) % 4];
  return static_cast<std::int64_t>(static_cast<__int128>(a_log) * kFixedOne / 1000000000);
}

Result<MadeCheckpoint> plan_checkpoint(const FabricateOptions& options) {
  const Geometry& g = options.geometry;
  TANDEM_TRY(check_geometry(g, "[fabricate]"));
  std::vector<MadeTensor> tensors = text_part(options);
  if (options.layout == FabricatedLayout::Published) {
    const auto* vision = std::find_if(std::begin(kVision), std::end(kVision), [&](const Vision& v) { return v.size == g.name; });
    if (vision == std::end(kVision) || !(*published(g.name) == g)) {
      return fail(ErrorKind::Invalid,
                  fmt::format("[fabricate] the published layout is that of a published size (0.8B, 2B, 4B, 9B, 27B), "
                              "unchanged; \"{}\" is not one",
                              g.name));
    }
    add_mtp(g, tensors);
    add_vision(*vision, tensors);
  }
  std::sort(tensors.begin(), tensors.end(), [](const MadeTensor& a, const MadeTensor& b) { return a.name < b.name; });

  MadeCheckpoint checkpoint;
  for (MadeTensor& tensor : tensors) {
    if (checkpoint.files.empty() || (checkpoint.files.back().data_bytes > 0 &&
                                     checkpoint.files.back().data_bytes + tensor.bytes() > options.shard_bytes)) {
      checkpoint.files.emplace_back();
    }
    checkpoint.files.back().data_bytes += tensor.bytes();
    checkpoint.total_bytes += tensor.bytes();
    checkpoint.files.back().tensors.push_back(std::move(tensor));
  }
  const std::size_t count = checkpoint.files.size();
  for (std::size_t i = 0; i < count; ++i) {
    MadeFile& file = checkpoint.files[i];
    const bool published_name = options.layout == FabricatedLayout::Published;
    file.name = count == 1 && !published_name
                    ? "model.safetensors"
                    : fmt::format("{}-{:05}-of-{:05}.safetensors", published_name ? "model.safetensors" : "model", i + 1, count);
    std::stable_sort(file.tensors.begin(), file.tensors.end(),
                     [](const MadeTensor& a, const MadeTensor& b) { return a.float32 > b.float32; });
    std::int64_t offset = 0;
    for (MadeTensor& tensor : file.tensors) {
      tensor.offset = offset;
      offset += tensor.bytes();
    }
    file.header = header_of(file, options.layout);
  }
  if (count > 1 || options.layout == FabricatedLayout::Published) checkpoint.index = index_of(checkpoint);
  return checkpoint;
}

}  // namespace tandem::model
