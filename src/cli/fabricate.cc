#include <fmt/format.h>

#include <cstdio>

#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/ranges.h"
#include "cli/progress_bar.h"
#include "model/fabricate.h"

namespace tandem::cli {
namespace {

constexpr char kExamples[] =
    "Writes a checkpoint that nobody trained, in Hugging Face layout: the same bytes on every machine, with the\n"
    "cost of the real one. For benchmarks and gates.\n\n"
    "  tandem fabricate 4B /tmp/fabricated-4b\n"
    "  tandem fabricate 0.8B OUT --like published       with vision and MTP tensors and the published file names\n"
    "  tandem fabricate custom OUT --hidden 512 --layers 8 --intermediate 1024 --query-heads 4 --kv-heads 2 \\\n"
    "                              --key-heads 4 --value-heads 8 --vocab 4096";

struct FabricateFlags {
  std::string size, folder, like = "text", shard = "5G";
  std::uint64_t seed = 1;
  int threads = 0;
  model::Geometry custom{.name = "custom", .hidden = 512, .intermediate = 1024, .query_heads = 4, .kv_heads = 2, .key_heads = 4,
                         .value_heads = 8, .vocab = 4096, .max_context = 32768, .tied = true};
  int layers = 8, interval = 4, spread = 0;
  bool untied = false;
};

Result<int> fabricate(FabricateFlags flags) {
  model::FabricateOptions options;
  if (flags.size == "custom") {
    options.geometry = flags.custom;
    options.geometry.tied = !flags.untied;
    if (flags.layers < 1 || flags.interval < 1)
      return fail(ErrorKind::Invalid, fmt::format("[layers] {} layers, full attention every {}; both at least 1", flags.layers, flags.interval));
    options.geometry.layers = model::layer_pattern(flags.layers, flags.interval);
    TANDEM_TRY(model::check_geometry(options.geometry, "fabricate"));
  } else {
    TANDEM_ASSIGN(options.geometry, model::published(flags.size));
  }
  options.folder = flags.folder;
  options.layout = flags.like == "published" ? model::FabricatedLayout::Published : model::FabricatedLayout::TextOnly;
  options.seed = flags.seed;
  options.threads = flags.threads;
  options.spread_percent = flags.spread;
  TANDEM_ASSIGN(options.shard_bytes, parse_bytes(flags.shard, "shard"));
  TANDEM_ASSIGN(const std::int64_t bytes, model::fabricated_bytes(options));
  {
    ProgressBar bar("fabricating " + options.geometry.name);
    TANDEM_TRY(model::fabricate(options, [&bar](std::int64_t done, std::int64_t total) { bar.show(done, total); }));
  }
  std::printf("%s: %s geometry, %.3f GB of weights\n", flags.folder.c_str(), options.geometry.name.c_str(), static_cast<double>(bytes) / 1e9);
  return 0;
}

}  // namespace

void add_fabricate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<FabricateFlags>();
  CLI::App* const command = app.add_subcommand("fabricate", kExamples);
  command->add_option("size", flags->size, "0.8B, 2B, 4B, 9B, 27B or custom")->required();
  command->add_option("folder", flags->folder, "Where to write; must not exist or be empty")->required();
  command->add_option("--like", flags->like, "text: text tensors only; published: with vision and MTP, published names")
      ->check(CLI::IsMember({"text", "published"}))->capture_default_str();
  command->add_option("--seed", flags->seed, "Another checkpoint of the same shape")->capture_default_str();
  command->add_option("--shard", flags->shard, "Largest weights file")->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads (default: cores)")->check(whole_number(1, 1024));
  const auto custom = [command](const char* flag, int& value) {
    command->add_option(flag, value)->capture_default_str()->group("Custom geometry");
  };
  custom("--hidden", flags->custom.hidden);
  custom("--intermediate", flags->custom.intermediate);
  custom("--query-heads", flags->custom.query_heads);
  custom("--kv-heads", flags->custom.kv_heads);
  custom("--key-heads", flags->custom.key_heads);
  custom("--value-heads", flags->custom.value_heads);
  custom("--vocab", flags->custom.vocab);
  custom("--max-context", flags->custom.max_context);
  command->add_option("--spread", flags->spread, "Deviation of the logits in percent; default: by the vocabulary")->check(CLI::Range(1, 1000))->group("Custom geometry");
  custom("--layers", flags->layers);
  custom("--full-attention-interval", flags->interval);
  command->add_flag("--untied", flags->untied, "A head of its own")->group("Custom geometry");
  command->callback([flags, &action] { action = [flags] { return fabricate(*flags); }; });
}

}  // namespace tandem::cli
