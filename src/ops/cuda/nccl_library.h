#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tandem::ops::cuda {

// libnccl.so.2 of the host, found by the loader (LD_LIBRARY_PATH, ld.so.conf): the program runs without it.
// NVLink multicast stays off.

// Whether it can be used. Error: Unsupported, with what is missing and where it usually lies. Thread: any.
[[nodiscard]] Result<void> nccl_available();

using NcclId = std::vector<char>;
[[nodiscard]] Result<NcclId> nccl_make_id();  // on one rank, for all

// One rank's communicator, made non-blocking: every wait in here ends at its deadline.
//
// Thread: the rank's; abort() any. Queues on the given stream.
class NcclRank {
 public:
  // With the rank's device bound; every rank calls it at the same time. `abandoned` ends the wait.
  // Errors: Deadline, Device, Poisoned.
  [[nodiscard]] static Result<std::shared_ptr<NcclRank>> open(const NcclId& id, int world, int rank, cudaStream_t stream,
                                                              TimePoint deadline, const std::atomic<bool>& abandoned);
  ~NcclRank();  // orderly, unless aborted; gives up after a second
  NcclRank(const NcclRank&) = delete;

  [[nodiscard]] Result<void> all_reduce(void* bf16_data, std::int64_t elements);
  [[nodiscard]] Result<void> broadcast(void* ids, std::int64_t elements);  // from rank 0
  [[nodiscard]] Result<void> check();                                     // errors that came later

  // Ends what is queued and every later call. May wait for the device's kernels to notice.
  void abort() noexcept;

 private:
  NcclRank(int rank, cudaStream_t stream) : rank_(rank), stream_(stream) {}
  [[nodiscard]] Result<void> settle(int status, const char* what, TimePoint deadline);

  const int rank_;
  cudaStream_t stream_;
  std::timed_mutex mutex_;
  void* comm_ = nullptr;  // ncclComm_t
  std::atomic<bool> aborted_{false};
};

}  // namespace tandem::ops::cuda
