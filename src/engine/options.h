#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/result.h"

namespace tandem::engine {

// All settings of an engine and their defaults. 0 means "what the ranks' capacity allows" where it is said.
struct EngineOptions {
  std::int32_t max_requests = 0;           // that hold a slot at once; 0: capacity's slots, never more
  std::int32_t max_context = 0;            // prompt + completion tokens; 0: capacity's, never more
  std::int32_t default_max_tokens = 1024;  // for requests without max_tokens (R5.2)
  std::int32_t max_step_tokens = 0;        // of any step; 0: capacity's, never more
  std::int32_t max_mixed_tokens = 0;       // with decode rows (scheduler/planner.h); 0: capacity's
  bool mixed = true;                       // a step may hold decode rows and prompt chunks
  std::size_t max_waiting = 8192;          // requests submitted and not yet admitted; then Overloaded
  std::chrono::milliseconds idle_ping{1000};  // with nothing to do, the ranks are asked this often whether they live
  int steps_in_flight = 1;                 // 2: the next step is sent before the last one is answered

  // Called once after a fatal failure, when every request has had its on_failure, so that the process can
  // end (R3.5). Thread: the text worker's; must not block and must not call stop().
  std::function<void(const Error&)> on_failed = {};
};

}  // namespace tandem::engine
