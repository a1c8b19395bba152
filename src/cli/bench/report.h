#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/shares.h"
#include "cli/bench/target.h"
#include "cli/bench/workload.h"

namespace tandem::cli::bench {

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, largest = 0, mean = 0;
};
// Linear between neighbours; zeros for no values.
[[nodiscard]] Percentiles percentiles(std::vector<double> values);

// What a workload showed. Times in milliseconds.
struct Report {
  Workload workload;
  int requests = 0;
  Percentiles ttft;        // request sent to first token
  Percentiles tpot;        // (last token - first) / (tokens - 1), one value a request
  Percentiles itl;         // one gap between tokens
  double step_ms = 0;      // batch-N: median gap while every stream decodes
  double seconds = 0;      // first request sent to last token seen
  double output_tokens_a_second = 0, total_tokens_a_second = 0;
  Percentiles long_ttft;   // mixed: of the long prompts
  std::optional<Shares> shares;  // with --shares; of every step, a first repetition that is not counted included
};

// `timelines` of the workload's streams; `longs` of the long prompts of `mixed`, which count in nothing but
// long_ttft and throughput.
[[nodiscard]] Report make_report(const Workload& workload, const std::vector<Timeline>& timelines, const std::vector<Timeline>& longs);
[[nodiscard]] std::string as_text(const Report& report);
[[nodiscard]] std::string as_json(const Report& report);

}  // namespace tandem::cli::bench
