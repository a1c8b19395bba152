#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "memory/planner.h"
#include "memory/pools.h"
#include "model/checkpoint.h"
#include "model/forward.h"
#include "model/partition.h"
#include "ops/backend.h"
#include "ops/step_shares.h"
#include "rank/book.h"
#include "rank/device.h"
#include "rank/rank_model.h"
#include "rank/step_builder.h"

namespace tandem::rank {

// What a rank did in one step, for tests and debugging. Spans live during the call.
struct StepTrace {
  RankId rank;
  std::uint64_t step = 0;                          // 1 for the first after start-up
  std::uint64_t collectives = 0;                   // so far
  std::uint64_t collective_hash = 0;               // of their sequence; equal on all ranks (P2a gate 3)
  std::span<const std::uint64_t> residual_hashes;  // with hash_residual; equal on all ranks (R7.7)
  ops::Backend* backend = nullptr;                 // to read bytes back
  const memory::Pools* pools = nullptr;
};

// All that the ranks of one replica are set up with; the same object for every rank, read-only.
struct RankSettings {
  std::shared_ptr<const model::Checkpoint> checkpoint;
  model::Geometry geometry;
  model::LinearAttention linear_attention = model::LinearAttention::Replicated;
  model::VectorRounding rounding = model::VectorRounding::Bf16;
  ops::LogprobsMode logprobs = ops::LogprobsMode::Raw;
  int tokens_with_text = 0;  // ids from here on are never sampled; 0: all can be
  ops::StepLimits limits;    // slots and pages as planned; the ranks measure whether they fit
  int warm_up_tokens = 0;    // of the warm-up's prompt chunk
  std::int64_t reserve_bytes = 0;
  std::optional<memory::PlanRequest> plan;  // a device must have it free before weights are read; absent: not asked
  std::vector<std::int64_t> planned_bytes;  // of each rank: weights, scratch, sampler and communicator as the planner counts them
  std::vector<std::int64_t> memory_bytes;  // what each rank may use of its device; empty: all of it
  std::vector<std::int64_t> taken_bytes;   // debug: what each rank finds gone when it measures; empty: nothing

  DeviceChoice devices;
  std::shared_ptr<comm::Group> group;

  // Warm-up meets every size of step at which a backend may choose another kernel, so that none is loaded after
  // `ready`: with several CUDA ranks a rank that loads could wait for a kernel that spins for it.
  bool warm_every_size = false;
  bool record_decode = false;  // recorded decode steps (CUDA graphs), one for every number of rows up to 256
  bool nan_fill_freed = false;                    // debug (R4.5): memory that no request holds is NaN
  bool hash_residual = false;                     // debug (R7.7)
  std::shared_ptr<ops::ShareMeter> shares;        // gets the times of rank 0's steps; CPU ranks only
  std::function<void(const StepTrace&)> on_step;  // debug: after each step is queued, on each rank's thread
};

// The real rank: backend, communicator, weights, pools and forward pass of one share of the model.
//
// Warm-up runs the largest step on a pool of one slot and one page. `allocate` makes the real pools and has
// the model check itself (model/self_check.h); from then on nothing allocates.
// Freed slots are zeroed (R2.7), or filled with NaN like freed pages in the debug mode.
class ModelRank final : public RankModel {
 public:
  ModelRank(std::shared_ptr<const RankSettings> settings, RankId rank, Status& status);
  ~ModelRank() override;

  [[nodiscard]] Result<void> open() override;
  [[nodiscard]] Result<void> load() override;
  [[nodiscard]] Result<void> warm_up() override;
  [[nodiscard]] Result<Measured> measure() override;
  [[nodiscard]] Result<void> allocate(const AllocateCommand& sizes) override;
  [[nodiscard]] Result<std::uint64_t> begin(const Step& step) override;
  [[nodiscard]] Result<StepResult> finish(std::uint64_t ticket) override;
  [[nodiscard]] Result<std::vector<bool>> drop(std::span<const Drop> drops) override;
  [[nodiscard]] Result<void> ping() override;
  [[nodiscard]] comm::SequenceMark collectives() const override;
  [[nodiscard]] Result<void> close() override;
  [[nodiscard]] Result<void> spoil(RequestId request) override;

 private:
  struct Begun {
    std::uint64_t ticket = 0;
    std::vector<WantedLogits> wanted;
  };

  [[nodiscard]] std::int64_t allocated_bytes() const;
  [[nodiscard]] Result<void> check_overhead(std::int64_t free_bytes) const;
  [[nodiscard]] Result<void> run_warm_up_step(int tokens);

  std::shared_ptr<const RankSettings> settings_;
  RankId rank_;
  Status& status_;

  // In the order of construction; destroyed in reverse (R3.2: communicator, then buffers with the backend).
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<comm::Communicator> comm_;
  std::optional<model::Partition> partition_;
  std::optional<model::Weights> weights_;
  std::optional<model::Forward> forward_;
  std::optional<memory::Pools> pools_;
  std::optional<Book> book_;
  std::optional<StepBuilder> builder_;
  std::vector<Begun> begun_;  // oldest first
  std::uint64_t steps_ = 0;
  std::int64_t free_at_open_ = 0;   // of the device
  std::int64_t warm_up_bytes_ = 0;  // of the warm-up's pool
};

}  // namespace tandem::rank
