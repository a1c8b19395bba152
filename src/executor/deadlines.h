#pragma once

#include "base/clock.h"

namespace tandem::executor {

// How long the controller waits (R3.7). All are flags.
struct Deadlines {
  Nanoseconds init = std::chrono::seconds(120);          // Open, WarmUp, Measure, Allocate
  Nanoseconds load_progress = std::chrono::seconds(30);  // Load: without a byte more on any rank
  Nanoseconds step = std::chrono::seconds(600);          // 30 s on CUDA
  Nanoseconds drop = std::chrono::seconds(10);          // and Ping
  Nanoseconds join = std::chrono::seconds(10);          // orderly shutdown
  Nanoseconds abort_grace = std::chrono::seconds(2);    // from the abort to the ranks' end
  Nanoseconds process_exit = std::chrono::seconds(10);  // from the poison to the process's end
};

}  // namespace tandem::executor
