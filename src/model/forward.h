#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/communicator.h"
#include "model/partition.h"
#include "model/pool_views.h"
#include "model/scratch.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace tandem::model {

struct ForwardOptions {
  ops::StepLimits limits;
  int tokens_with_text = 0;  // ids from here on have no token and are never sampled (design); 0: all have
  ops::LogprobsMode logprobs = ops::LogprobsMode::Raw;
  bool hash_residual = false;  // debug (R7.7): a hash of the residual after every layer; waits for the device
};

// The model on one rank: embedding, layers, and on rank 0 head and sampler, for one ragged step at a time
// (spec 3). Written once over the operator contract; decode and prefill rows, one rank and many, are the
// same code.
//
// Thread: the rank's. Borrows backend and communicator, which outlive it; allocates its scratch from the
// backend once, in `make`.
class Forward {
 public:
  // Errors: the backend's (Capacity when the scratch does not fit).
  [[nodiscard]] static Result<Forward> make(ops::Backend& backend, comm::Communicator& comm,
                                            const Geometry& geometry, const Partition& partition, Weights weights,
                                            const ForwardOptions& options);

  // The pools that steps read and write from now on; before the first step, and again when they move
  // (warm-up runs on small ones). The numbers of views are those of the geometry's layers.
  void bind(PoolViews pools) { pools_ = std::move(pools); }

  // Queues one step from begin_step to end_step and returns its ticket for Backend::wait. The collectives
  // are one all-reduce of T x H after every mixer (not after a replicated linear one) and every MLP, in
  // layer order, then one broadcast of the ids if the step has logit rows.
  // Errors: the backend's and the communicator's; the replica is then lost.
  [[nodiscard]] Result<std::uint64_t> run(const ops::StepView& step);

  // Runs a step of `rows` decode rows that all sample and name `trash` and `scratch` alone, and waits for it: what it
  // uses is loaded afterwards. After bind, before serving, on every rank. Errors: as run().
  [[nodiscard]] Result<void> run_padding(int rows, SlotId trash, PageId scratch);

  // Records the operators of a step of `rows` decode rows that all sample, for backends that can
  // (Backend::can_record): later such steps run the recording. Nothing is executed, and only `trash` and
  // `scratch` are named. After bind, before serving; a world of one only. Errors: the backend's.
  [[nodiscard]] Result<void> record_decode(int rows, SlotId trash, PageId scratch);

  // With hash_residual: entry 0 after the embedding, entry i + 1 after layer i, of the latest step.
  [[nodiscard]] std::span<const std::uint64_t> residual_hashes() const { return hashes_; }

  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }
  [[nodiscard]] const ops::StepLimits& limits() const { return options_.limits; }
  [[nodiscard]] const Geometry& geometry() const { return geometry_; }

 private:
  Forward(ops::Backend& backend, comm::Communicator& comm, const Geometry& geometry, const Partition& partition)
      : backend_(&backend), comm_(&comm), geometry_(geometry), partition_(partition) {}

  [[nodiscard]] Result<void> operators(const ops::StepView& step);
  [[nodiscard]] Result<void> layers(int tokens);
  [[nodiscard]] Result<void> mix(const FullMixer& mixer, int index, int tokens);
  [[nodiscard]] Result<void> mix(const LinearMixer& mixer, int index, int tokens);
  [[nodiscard]] Result<void> block(std::size_t layer, int tokens);
  [[nodiscard]] ops::LinearWeight projection(std::size_t layer) const;
  [[nodiscard]] ops::View<bf16, 2> projected(std::size_t layer, int tokens) const;
  [[nodiscard]] Result<void> choose(const ops::StepView& step);
  [[nodiscard]] Result<void> note_residual(int tokens);

  ops::Backend* backend_;
  comm::Communicator* comm_;
  std::unique_ptr<comm::Communicator> alone_;  // closes blocks whose output is whole on every rank
  Geometry geometry_;
  Partition partition_;
  Weights weights_;
  PoolViews pools_;
  ForwardOptions options_;
  Scratch scratch_;
  std::vector<std::uint64_t> hashes_;
  std::vector<bf16> hash_buffer_;
};

}  // namespace tandem::model
