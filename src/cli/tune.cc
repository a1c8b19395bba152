#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "cli/commands.h"
#include "cli/geometry_argument.h"
#include "model/partition.h"
#include "rank/tune.h"

namespace tandem::cli {
namespace {

constexpr char kExamples[] =
    "Measures which algorithm computes each of a model's products fastest on this GPU, and writes the table that\n"
    "serving looks it up in (docs/decisions/gemm-table.md). Serving itself never measures. Needs no weights.\n\n"
    "  tandem tune 4B --device cuda --output src/ops/cuda/gemm_tables/nvidia-h200.txt\n"
    "  tandem tune 4B 0.8B --tp 1,2";

struct TuneFlags {
  std::vector<std::string> models;
  std::string device = "cuda", output;
  std::vector<int> tp = {1};
  int ordinal = 0, least_tokens = 1, most_tokens = 8192, most_logit_rows = 128;
};

using Shapes = std::vector<ops::cuda::TuneShape>;

void add(Shapes& shapes, ops::cuda::TuneShape shape) {
  for (ops::cuda::TuneShape& other : shapes) {
    if (other.n != shape.n || other.k != shape.k) continue;
    other.gate_up |= shape.gate_up;
    other.most_tokens = std::max(other.most_tokens, shape.most_tokens);
    return;
  }
  shapes.push_back(std::move(shape));
}

// The products of one rank as the forward pass runs them, weights of one input stacked.
void add_products(Shapes& shapes, const std::string& what, const model::Geometry& geometry, const model::Partition& partition, const TuneFlags& flags) {
  const auto stacked = [&](std::initializer_list<model::Role> roles, int layer, const char* name, bool gate_up, int most_tokens) {
    ops::cuda::TuneShape shape{.what = fmt::format("{} {}", what, name), .gate_up = gate_up, .most_tokens = most_tokens};
    for (const model::Role role : roles) {
      const model::Share share = partition.share(model::tensor_spec(geometry, role, layer));
      shape.n += share.row_count();
      shape.k = share.cols.count;
    }
    add(shapes, std::move(shape));
  };
  for (int layer = 0; layer < geometry.layer_count(); ++layer) {
    using enum model::Role;
    if (geometry.layers[static_cast<std::size_t>(layer)] == model::LayerKind::Full) {
      stacked({Query, Key, Value}, layer, "qkv_proj", false, flags.most_tokens);
      stacked({AttentionOut}, layer, "o_proj", false, flags.most_tokens);
    } else {
      stacked({InQkv, InZ, InB, InA}, layer, "in_proj", false, flags.most_tokens);
      stacked({DeltaOut}, layer, "out_proj", false, flags.most_tokens);
    }
    stacked({Gate, Up}, layer, "gate_up_proj", true, flags.most_tokens);
    stacked({Down}, layer, "down_proj", false, flags.most_tokens);
  }
  stacked({model::Role::Embedding}, -1, "head", false, flags.most_logit_rows);
}

Result<int> tune(const TuneFlags& flags) {
  ops::cuda::TuneOptions options{.ordinal = flags.ordinal, .least_tokens = flags.least_tokens};
  for (const std::string& named : flags.models) {
    TANDEM_ASSIGN(const model::Geometry geometry, geometry_argument(named));
    for (const int world : flags.tp)
      for (const auto mode : {model::LinearAttention::Replicated, model::LinearAttention::Sharded}) {
        if (world == 1 && mode == model::LinearAttention::Sharded) continue;
        TANDEM_ASSIGN(const model::Partition partition, model::Partition::make(geometry, RankId{0}, world, mode));
        add_products(options.shapes, world == 1 ? geometry.name : fmt::format("{} TP{}", geometry.name, world), geometry, partition, flags);
      }
  }
  options.line = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    std::fflush(stderr);
  };
  TANDEM_ASSIGN(const std::string table, rank::tune_cuda(options));
  if (flags.output.empty()) {
    std::fputs(table.c_str(), stdout);
    return 0;
  }
  std::ofstream file(flags.output);
  file << table;
  file.close();
  if (!file) return fail(ErrorKind::Io, fmt::format("[tune] {} cannot be written; a file in a folder that exists works", flags.output), "--output");
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* const command = app.add_subcommand("tune", kExamples);
  command->add_option("models", flags->models, "0.8B, 2B, 4B, 9B, 27B or folders with config.json")->required();
  command->add_option("--device", flags->device, "cuda; the CPU has no such table")->check(CLI::IsMember({"cuda"}))->capture_default_str();
  command->add_option("--ordinal", flags->ordinal, "Logical device to measure on")->capture_default_str();
  command->add_option("--tp", flags->tp, "Degrees whose products to measure")->delimiter(',')->capture_default_str();
  command->add_option("--least-tokens", flags->least_tokens, "Fewest tokens of a product")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--most-tokens", flags->most_tokens, "Most tokens of a product")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--most-logit-rows", flags->most_logit_rows, "Most tokens of the head's product")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--output", flags->output, "The table's file (default: standard output)");
  command->callback([flags, &action] { action = [flags] { return tune(*flags); }; });
}

}  // namespace tandem::cli
