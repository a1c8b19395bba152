#pragma once

#include <cstdint>

namespace tandem::scheduler {

// What the scheduler publishes once a tick, after the closed clients are pruned (R4.4).
// After a fatal failure the first six are zero (R3.3); the counters keep what was done until then.
struct Load {
  std::int32_t running = 0;  // requests that hold a slot
  std::int32_t waiting = 0;  // requests in the queue
  std::int32_t slots = 0, slots_used = 0;
  std::int32_t pages = 0, pages_used = 0;  // used: reserved for whole lives
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;     // prefilled by steps that have been answered
  std::uint64_t generated_tokens = 0;  // sampled and handed to the text worker
  std::int32_t last_step_rows = 0, last_step_decode_rows = 0, last_step_tokens = 0;
};

}  // namespace tandem::scheduler
