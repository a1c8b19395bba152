#pragma once

namespace tandem::ops::cuda {

// Meeting points of all blocks of a launch, which must be resident together. `state` is device memory that starts as
// zeros and serves every launch of one grid size, one launch at a time: [0] counts arrivals since start-up, [1] is
// what [0] was when the last launch ended. 64 bits never wrap; nothing has to be reset between launches or replays.
//
// One thread of a block calls these, between block-wide barriers of its own.
class GridBarrier {
 public:
  // After the launch before has ended (wait_for_inputs).
  __device__ __forceinline__ void open(unsigned long long* state) {
    state_ = state;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(target_) : "l"(state + 1) : "memory");
  }
  // What the blocks wrote before it, all of them see after it.
  __device__ __forceinline__ void meet() {
    target_ += gridDim.x;
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(state_) : "memory");
    unsigned long long seen;
    do {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(state_) : "memory");
    } while (seen < target_);
  }
  // One block, after the launch's last meeting point, at which it waited.
  __device__ __forceinline__ void close() { state_[1] = target_; }

 private:
  unsigned long long* state_;
  unsigned long long target_;
};

}  // namespace tandem::ops::cuda
