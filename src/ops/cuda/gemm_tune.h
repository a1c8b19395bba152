#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::ops::cuda {

// Makes the algorithm table of ops/gemm_table.h for one device: every product at several numbers of tokens, by many of
// cuBLASLt's algorithms and every plan of few_tokens.cuh, timed as a step runs them: recorded, one cold weight after
// another. What adds in an order that may change takes no part, and a winner must give equal bits twice and agree with
// cuBLASLt's favourite.

struct TuneShape {
  std::string what;     // for the log
  std::int64_t n = 0, k = 0;
  bool gate_up = false;  // also with SwiGLU as its epilogue
  int most_tokens = 0;   // the head sees no more than a step's logit rows
};

struct TuneOptions {
  int ordinal = 0;
  std::vector<TuneShape> shapes;
  int least_tokens = 1;
  std::function<void(std::string_view)> line;  // called with each result as it stands
};

// The table's text. Thread: any; binds the device to it. Errors: Unsupported, Capacity, Device.
[[nodiscard]] Result<std::string> tune_gemms(const TuneOptions& options);

}  // namespace tandem::ops::cuda
