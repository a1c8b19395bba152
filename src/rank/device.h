#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "comm/all_reduce.h"
#include "comm/group.h"
#include "ops/backend.h"

namespace tandem::rank {

enum class DeviceKind : std::uint8_t { Cpu, Cuda };
enum class OpsKind : std::uint8_t {
  Fast,       // the device's own kernels
  Reference,  // the plain ones; on the CPU only
};

[[nodiscard]] std::string_view name(DeviceKind kind);  // "cpu", "cuda"

struct DeviceChoice {
  DeviceKind kind = DeviceKind::Cpu;
  OpsKind ops = OpsKind::Fast;
  std::vector<int> ordinals = {0};  // one per rank, logical (R6.1)
  int cpu_threads = 0;              // of one CPU rank's team; 0: cores / ranks, at least 1
  comm::AllReduce all_reduce = comm::AllReduce::Auto;  // of CUDA ranks
};

inline constexpr int kMaxOrdinals = 16;

// R6.1, before anything is opened: at least one device, ordinals distinct, 0 to 15 and visible.
// CUDA: loads libtandem_cuda.so to count the devices. Thread: any.
// Errors: Invalid or Unsupported, with the field, its value and what works.
[[nodiscard]] Result<void> check_devices(const DeviceChoice& choice);

// Visible CUDA devices, at least 1. Thread: any.
// Error: Unsupported: no libtandem_cuda.so, no driver or no device, with what would help.
[[nodiscard]] Result<int> cuda_devices();

// Threads of one CPU rank's team.
[[nodiscard]] int cpu_threads_of(const DeviceChoice& choice);

// Binds the rank's device to the calling thread and makes its backend. Thread: the rank's.
// Errors: Unsupported, Device.
[[nodiscard]] Result<std::unique_ptr<ops::Backend>> make_backend(const DeviceChoice& choice, RankId rank);

// The ranks' meeting point for these devices. Thread: the controller's, before the ranks'.
// Error: Unsupported.
[[nodiscard]] Result<std::shared_ptr<comm::Group>> make_group(const DeviceChoice& choice,
                                                              Nanoseconds init_deadline,
                                                              Nanoseconds step_deadline);

}  // namespace tandem::rank
