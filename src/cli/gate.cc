#include <fmt/format.h>

#include <cstdio>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/fixture_checkpoint.h"
#include "cli/replica_flags.h"
#include "gates/fixture.h"
#include "gates/mutations.h"
#include "rank/device.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kExamples[] =
    "Replays golden fixtures (gates/fixtures) and judges the logits by Hugging Face's own error: mean <= 1.15,\n"
    "p99 <= 1.3 of the floor, a second replay with equal bits. Checkpoints that a fixture fabricates are made once\n"
    "and kept in --work.\n\n"
    "  tandem gate gates/fixtures/tandem-tiny.json\n"
    "  tandem gate gates/fixtures/*.json --ops reference --device cpu\n"
    "  tandem gate gates/fixtures/r2-g4-untied.json --tp 2\n"
    "  tandem gate gates/fixtures/r2-g4-untied.json --mutations     every built-in fault must fail";

struct GateFlags {
  std::vector<std::string> fixtures;
  std::string model, work = "build/gates";
  ReplicaFlags replica;
  bool mutations = false;
};

Result<gates::GateResult> run(const fs::path& model, const gates::GateFixture& fixture, const Replica& replica,
                              const gates::MutationName* mutation) {
  const rank::DeviceChoice& devices = replica.executor.devices;
  TANDEM_ASSIGN(const std::shared_ptr<comm::Group> group, rank::make_group(devices, replica.executor.deadlines.init, replica.executor.deadlines.step));
  gates::GateOptions options;
  options.world = static_cast<int>(devices.ordinals.size());
  options.linear_attention = replica.executor.linear_attention;
  options.rounding = replica.executor.rounding;
  options.replay_twice = mutation == nullptr;
  const gates::BackendFactory make = [&](RankId rank) -> Result<std::unique_ptr<ops::Backend>> {
    TANDEM_ASSIGN(std::unique_ptr<ops::Backend> backend, rank::make_backend(devices, rank));
    if (mutation) backend = gates::make_mutating_backend(std::move(backend), mutation->mutation);
    return backend;
  };
  return gates::run_hf_gate(model, fixture, make, *group, options);
}

Result<int> gate(const GateFlags& flags) {
  TANDEM_ASSIGN(Replica replica, to_options(flags.replica));
  const std::string where = fmt::format("{} {} TP{}", rank::name(replica.executor.devices.kind), flags.replica.ops, replica.executor.devices.ordinals.size());
  int failures = 0;
  for (const std::string& name : flags.fixtures) {
    TANDEM_ASSIGN(const gates::FixtureFile file, gates::read_fixture(name));
    TANDEM_ASSIGN(const fs::path model, fixture_checkpoint(file, flags.model, flags.work));
    replica.executor.model = model;
    TANDEM_TRY(executor::check_start(replica.executor));
    if (!flags.mutations) {
      TANDEM_ASSIGN(const gates::GateResult result, run(model, file.fixture, replica, nullptr));
      std::printf("%s, %s: %s%s\n%s", file.fixture.name.c_str(), where.c_str(), result.passed ? "pass" : "FAIL",
                  result.repeatable ? "" : " (a second replay differs)", result.table.c_str());
      failures += !result.passed;
    } else {
      for (const gates::MutationName& mutation : gates::all_mutations()) {
        TANDEM_ASSIGN(const gates::GateResult result, run(model, file.fixture, replica, &mutation));
        std::printf("%s, %s, %s: %s (mean %.3f x floor)\n", file.fixture.name.c_str(), where.c_str(), std::string(mutation.name).c_str(),
                    result.passed ? "NOT NOTICED" : "noticed", result.figures.mean / file.fixture.floor.mean);
        failures += result.passed;
      }
    }
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

void add_gate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<GateFlags>();
  CLI::App* const command = app.add_subcommand("gate", kExamples);
  command->add_option("fixtures", flags->fixtures, "Fixture files")->required();
  command->add_option("--model", flags->model, "Folder of the checkpoint (default: the fixture's own)");
  command->add_option("--work", flags->work, "Where fabricated checkpoints are kept")->capture_default_str();
  command->add_flag("--mutations", flags->mutations, "Build in each fault of the mutation table; every one must fail the gate");
  flags->replica.add_ranks(*command);
  command->callback([flags, &action] {
    action = [flags] {
      set_log_level(LogLevel::Warn);
      flags->replica.log_level = "warn";
      return gate(*flags);
    };
  });
}

}  // namespace tandem::cli
