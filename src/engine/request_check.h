#pragma once

#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "scheduler/planner.h"
#include "scheduler/request.h"

namespace tandem::engine {

// What a request is checked against.
struct RequestRules {
  scheduler::Limits limits;
  std::int32_t default_max_tokens = 0;
  std::int32_t vocab = 0;
  std::span<const TokenId> end_ids;  // the model's
};

// The scheduler's view of a request, with max_tokens and the end ids resolved; `spec.id` is not set.
// The prompt is copied. Thread: any.
// Errors: Invalid (the field, what came, what would work), Capacity (can never fit, with the limit; R5.3).
[[nodiscard]] Result<scheduler::RequestSpec> check_request(const Request& request, const RequestRules& rules);

}  // namespace tandem::engine
