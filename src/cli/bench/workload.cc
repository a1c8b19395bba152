#include "cli/bench/workload.h"

#include <fmt/format.h>

#include <string>

namespace tandem::cli::bench {

const std::vector<Workload>& workloads() {
  using enum Workload::Kind;
  static const std::vector<Workload> all = {
      {.name = "solo", .repetitions = 9},
      {.name = "prompt-2k", .prompt_tokens = 2048, .output_tokens = 1, .repetitions = 6},
      {.name = "prompt-8k", .prompt_tokens = 8192, .output_tokens = 1, .repetitions = 6},
      {.name = "prompt-32k", .prompt_tokens = 32768, .output_tokens = 1, .repetitions = 4},
      {.name = "batch-8", .streams = 8},
      {.name = "batch-32", .streams = 32},
      {.name = "batch-64", .streams = 64},
      {.name = "batch-128", .streams = 128},
      {.name = "saturate", .streams = 64, .prompt_tokens = 8192, .output_tokens = 1024},
      {.name = "chat", .kind = Poisson, .seconds = 30},
      {.name = "mixed", .kind = Mixed, .streams = 8, .prompt_tokens = 512, .output_tokens = 512, .long_prompt = 8192, .seconds = 15},
  };
  return all;
}

Result<Workload> find_workload(std::string_view name) {
  std::string names;
  for (const Workload& workload : workloads()) {
    if (workload.name == name) return workload;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", workload.name);
  }
  return fail(ErrorKind::NotFound, fmt::format("[workload] there is no '{}'; there are {}", name, names), "workload");
}

Result<std::vector<Workload>> find_workloads(const std::vector<std::string>& lists) {
  std::vector<Workload> found;
  for (std::string_view rest : lists) {
    for (;;) {
      const std::size_t comma = rest.find(',');
      TANDEM_ASSIGN(const Workload workload, find_workload(rest.substr(0, comma)));
      found.push_back(workload);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return found;
}

}  // namespace tandem::cli::bench
