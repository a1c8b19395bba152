#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::cli::bench {

// A named load (docs/benchmarks/README.md). Random token ids, greedy, end tokens ignored.
struct Workload {
  std::string_view name;
  enum class Kind { Together, Mixed, Poisson } kind = Kind::Together;
  int streams = 1;        // Together: sent at once; Mixed: always decoding
  int prompt_tokens = 512;
  int output_tokens = 256;
  int repetitions = 1;    // Together: one after another, the first not counted if there are several
  int long_prompt = 0;    // Mixed: arrives every second
  double seconds = 0;     // Mixed, Poisson: how long requests are sent
};

[[nodiscard]] const std::vector<Workload>& workloads();
// Error: NotFound, listing the names.
[[nodiscard]] Result<Workload> find_workload(std::string_view name);
// Of lists as "solo,chat". Error: find_workload's; an empty name is one that there is not.
[[nodiscard]] Result<std::vector<Workload>> find_workloads(const std::vector<std::string>& lists);

}  // namespace tandem::cli::bench
