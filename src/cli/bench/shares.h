#pragma once

#include <string>

#include "base/json_writer.h"
#include "ops/step_shares.h"

namespace tandem::cli::bench {

// Where the steps of a workload spent their time on rank 0, and how fast memory was read beside it.
struct Shares {
  ops::StepShares steps;
  double read_bandwidth = 0;  // bytes a second that the rank's threads read, before or after; 0: not measured
};

// One line a kind of step that came: its mean time and the parts in percent, largest first. Decode also as bytes
// of weights a second.
[[nodiscard]] std::string as_text(const Shares& shares);
// "shares": {"decode": {...}, "prompt": {...}, "mixed": {...}, ...}, as a member of the open object.
void write(JsonWriter& json, const Shares& shares);

}  // namespace tandem::cli::bench
