#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/geometry.h"
#include "model/partition.h"
#include "model/tensors.h"
#include "ops/step_view.h"

namespace tandem::memory {

// What is asked of the devices. Pure numbers: nothing is loaded or allocated.
struct PlanRequest {
  model::Geometry geometry;
  int world = 1;
  model::LinearAttention linear_attention = model::LinearAttention::Replicated;
  // max_tokens, max_rows, max_context, max_logit_rows and slots (--max-requests) count; pages are what
  // is planned, vocab is the geometry's.
  ops::StepLimits limits;
  bool context_is_wish = false;        // max_context is only the model's: a shorter longest request is fine
  std::vector<std::int64_t> device_bytes;  // what each rank may use; one entry stands for all. Empty: unlimited
  std::int64_t sampler_slot_bytes = 0;   // what a device's sampler keeps for a slot; 0: as hosts do, the ids of its tokens
  std::int64_t communication_bytes = 0;  // of each rank's communicator
  std::int64_t reserve_bytes = 0;      // left alone: the backend's libraries, fragmentation
  std::optional<std::int64_t> kv_bytes;  // --kv-memory: at most this much for pages on each rank
};

struct GroupBytes {
  model::WeightGroup group;
  std::int64_t bytes = 0;  // in the checkpoint's types
};

// One rank's sum. Everything in bytes.
struct RankPlan {
  int rank = 0;
  std::vector<GroupBytes> weights;
  std::int64_t weight_bytes = 0;    // the sum of `weights`
  std::int64_t widening_bytes = 0;  // vectors are kept in float32: what that adds to bf16 ones
  std::int64_t scratch_bytes = 0;
  std::int64_t sampler_bytes = 0;
  std::int64_t communication_bytes = 0;
  std::int64_t reserve_bytes = 0;
  std::int64_t slot_bytes = 0;      // one state slot
  std::int64_t page_bytes = 0;      // one KV page
  std::int64_t slots = 0;           // the trash slot included
  std::int64_t device_bytes = 0;    // 0: unlimited
  std::int64_t pages = 0;           // that fit, the scratch page not included

  [[nodiscard]] std::int64_t fixed_bytes() const {
    return weight_bytes + widening_bytes + scratch_bytes + sampler_bytes + communication_bytes + reserve_bytes +
           slots * slot_bytes + page_bytes;
  }
};

struct CapacityPlan {
  std::vector<RankPlan> ranks;
  int slots = 0;                      // the trash slot not included
  int pages = 0;                      // the minimum over ranks (R5.1); scratch page not included
  std::int64_t longest_request = 0;   // tokens that one request alone can write: pages * 64, at most max_context
};

// Pages get what is left. Unlimited devices get pages for every slot to reach max_context.
// Errors: Unsupported (R6.2), Capacity: less than one page per slot, or less than a whole max_context
// unless context_is_wish; the message has the rank's sum and the number of requests, or the context,
// that would fit.
[[nodiscard]] Result<CapacityPlan> plan_capacity(const PlanRequest& request);

// For a rank that has opened its device and loaded nothing: the request's plan within the bytes that are free there.
// Errors: as plan_capacity, with this rank's sum.
[[nodiscard]] Result<void> check_fits(PlanRequest request, int rank, std::int64_t free_bytes);

// What a rank that has loaded and measured can hold in the bytes that are left after the reserve (R5.1): of the wanted
// slots as many as leave a page each and `least_pages` in all, and pages in the rest, at most those wanted. The trash
// slot and the scratch page are paid for. No slot: not one request fits.
struct Room {
  int slots = 0;
  int pages = 0;
};
[[nodiscard]] Room room_in(std::int64_t left_bytes, const Room& wanted, std::int64_t least_pages, std::int64_t slot_bytes,
                           std::int64_t page_bytes);

// What `tandem inspect` and the start-up log print: the sum line by line, per rank (ranks with equal sums
// together), in exact bytes.
[[nodiscard]] std::string plan_text(const PlanRequest& request, const CapacityPlan& plan);
[[nodiscard]] std::string plan_json(const PlanRequest& request, const CapacityPlan& plan);

enum class ReportFormat : std::uint8_t { Text, Json };

// The report of `tandem inspect` for any geometry, world and memory size. Errors: as plan_capacity.
[[nodiscard]] Result<std::string> inspect_report(const PlanRequest& request, ReportFormat format);

}  // namespace tandem::memory
