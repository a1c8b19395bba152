#include <fmt/format.h>

#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "cli/commands.h"

namespace {

constexpr char kAbout[] =
    "Tandem serves Qwen3.5 models on one or several devices of one host.\n\n"
    "  tandem serve                                   the bundled small model, on the CPU\n"
    "  tandem serve ~/models/Qwen3.5-4B --device cuda --tp 2\n"
    "  tandem chat                                    talks with it at the terminal\n"
    "  tandem inspect 4B --tp 2 --memory 80G          what would fit, without a GPU or the weights\n";

constexpr int kWrongUsage = 2;  // 1 is for what was understood and failed

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{kAbout, "tandem"};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("tandem {}", tandem::version()));
  tandem::cli::Action action;
  tandem::cli::add_serve(app, action);
  tandem::cli::add_inspect(app, action);
  tandem::cli::add_tokenize(app, action);
  tandem::cli::add_fabricate(app, action);
  tandem::cli::add_gate(app, action);
  tandem::cli::add_bench(app, action);
  tandem::cli::add_chat(app, action);
  tandem::cli::add_soak(app, action);
  tandem::cli::add_tune(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help or version
    const auto chosen = app.get_subcommands();
    std::fprintf(stderr, "tandem: %s\ntandem %s--help lists what there is\n", error.what(), chosen.empty() ? "" : (chosen.front()->get_name() + " ").c_str());
    return kWrongUsage;
  }

  const tandem::Result<int> status = action();
  if (status) return *status;
  std::fprintf(stderr, "tandem: %s\n", status.error().message.c_str());
  return 1;
}
