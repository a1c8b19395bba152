#pragma once

#include "ops/block.h"
#include "ops/cuda/block_kernel.cuh"
#include "ops/cuda/linear.h"

namespace tandem::ops::cuda {

// How the block kernel fetches a weight [N, K] in units of 16 rows x 512 inputs: as [K / 64, 1, N, 64], or, for gate
// over up, as [K / 64, 2, N / 2, 64] with 8 rows of either in a unit, so that SwiGLU finds both in one thread.
// Nothing if K is no multiple of 64. Error: Device.
[[nodiscard]] Result<std::optional<CUtensorMap>> block_units(const DeviceMatrix& weight, bool gate_up);

// Settings that a bench varies; the defaults are the best of block_bench.
struct BlockTuning {
  int stages = kBlockMostStages;                 // of the ring at most, 16 KiB each
  int in_flight_busy = 4;                        // units asked for at a time while blocks multiply
  int in_flight_idle = 2;                        // and while they wait for the mixer or each other
  std::size_t shared_bytes = kBlockSharedLimit;  // of a block
};

// The fused form of ops/block.h for up to 8 tokens in a world of one. Reference: Backend::block on the reference
// backend. Moves the block's weights once; limit: memory.
//
// Thread: the rank's. Owns nothing; its scratch lives as long as the backend.
class DecodeBlock {
 public:
  static constexpr std::size_t kPartialsBytes = 8u << 20;

  // Function attributes of this device (R1.5). `state` is two zeroed 64-bit words, `partials` kPartialsBytes.
  [[nodiscard]] Result<void> prepare(void* state, void* partials);

  // Queues the block if its shapes fit the kernel; false, with nothing done, if they do not. Error: Device.
  [[nodiscard]] Result<bool> run(const Context& context, const BlockArgs& args, const BlockTuning& tuning = {}) const;

 private:
  unsigned long long* state_ = nullptr;
  float* partials_ = nullptr;
};

}  // namespace tandem::ops::cuda
