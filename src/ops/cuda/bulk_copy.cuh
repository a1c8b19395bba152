#pragma once

#include <cstdint>

// The bulk copy engine of sm_90 between device and shared memory, and the barrier that loads complete on.
// Addresses and sizes are multiples of 16 bytes. One thread issues; see each function for who waits.
namespace tandem::ops::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

// After barrier_init and a block barrier: makes the barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Every thread that reads what was loaded waits for the phase (0, 1, 0, ...).
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, int phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni finished;\n"
      "bra.uni again;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

// Device to shared memory; adds its bytes to the barrier's transaction.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// Shared to device memory, in the issuing thread's group. Writers of the shared memory call
// async_fence() before the block barrier that precedes this.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The issuing thread: its stores have read their shared memory (or, all_done, have reached device memory).
__device__ __forceinline__ void bulk_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// A box of a described tensor; its bytes count at the barrier, those outside the tensor too. One thread issues.
__device__ __forceinline__ void tensor_load(void* shared, const void* map, int x, int y, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                   shared_address(shared)),
               "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void tensor_load(void* shared, const void* map, int x, int y, int z, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   shared_address(shared)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void tensor_load(void* shared, const void* map, int x, int y, int z, int w, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(
                   shared_address(shared)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
               : "memory");
}
// One lane could arrive for its warp, behind __syncwarp(), and whoever waits could pass the order on by a barrier of its own.
// compute-sanitizer's racecheck credits neither: it knows the accesses of threads that arrived, to threads that waited, at
// one barrier. Where racecheck sees both accesses, every lane arrives, and who overwrites waits for each barrier itself;
// neither takes measurable time (docs/gates.md).
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// 16 bytes a thread from device to shared memory, for rows too small for the engine above (which takes tens
// of nanoseconds a copy). Zeros where `valid` is false. A thread's copies since its last commit are a group.
__device__ __forceinline__ void async_copy16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the thread's newest kPending groups have arrived; a block barrier shows them to other threads.
template <int kPending>
__device__ __forceinline__ void async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tandem::ops::cuda
