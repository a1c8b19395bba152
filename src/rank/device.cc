#include "rank/device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/log.h"
#include "base/thread_team.h"
#include "comm/shared_memory.h"
#include "comm/world_of_one.h"
#include "ops/cpu/backend.h"
#include "ops/cuda/entry.h"
#include "ops/reference/backend.h"
#include "rank/tune.h"

namespace tandem::rank {
namespace {

// libtandem_cuda.so, loaded once and never unloaded: its kernels may run until the process ends.
// Found where the executable's DT_RPATH says (beside it, in lib/ there, and in a checkout's build/cuda), else where
// LD_LIBRARY_PATH says.
struct CudaLibrary {
  ops::cuda::MakeBackend make_backend = nullptr;
  ops::cuda::DeviceCount device_count = nullptr;
  ops::cuda::CheckPeers check_peers = nullptr;
  ops::cuda::MakeGroup make_group = nullptr;
  ops::cuda::Tune tune = nullptr;
  std::string failure;

  CudaLibrary() {
    void* library = dlopen("libtandem_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      failure = fmt::format(
          "the CUDA backend cannot be loaded ({}); make cuda builds it in a checkout, elsewhere put libtandem_cuda.so "
          "beside the executable, or use --device cpu",
          dlerror());
      return;
    }
    make_backend = reinterpret_cast<ops::cuda::MakeBackend>(dlsym(library, ops::cuda::kMakeBackend));
    device_count = reinterpret_cast<ops::cuda::DeviceCount>(dlsym(library, ops::cuda::kDeviceCount));
    check_peers = reinterpret_cast<ops::cuda::CheckPeers>(dlsym(library, ops::cuda::kCheckPeers));
    make_group = reinterpret_cast<ops::cuda::MakeGroup>(dlsym(library, ops::cuda::kMakeGroup));
    tune = reinterpret_cast<ops::cuda::Tune>(dlsym(library, ops::cuda::kTune));
    if (make_backend == nullptr || device_count == nullptr || check_peers == nullptr || make_group == nullptr || tune == nullptr)
      failure = "libtandem_cuda.so is of another version";
  }
};

Result<const CudaLibrary*> cuda_library() {
  static const CudaLibrary library;
  if (!library.failure.empty()) return fail(ErrorKind::Unsupported, "[device] " + library.failure);
  return &library;
}

std::string list(const std::vector<int>& ordinals) { return fmt::format("{}", fmt::join(ordinals, ",")); }

// Of all ranks' teams. A rank may spin while it waits only if its peers' teams have cores of their own.
int all_cpu_threads_of(const DeviceChoice& choice) {
  return cpu_threads_of(choice) * static_cast<int>(choice.ordinals.size());
}
int spin_of(const DeviceChoice& choice) { return all_cpu_threads_of(choice) < usable_cores() ? 4000 : 0; }

ops::cuda::PeerGroupOptions peers_of(const DeviceChoice& choice) {
  return {.ordinals = choice.ordinals, .all_reduce = choice.all_reduce};
}

}  // namespace

int cpu_threads_of(const DeviceChoice& choice) {
  if (choice.cpu_threads > 0) return choice.cpu_threads;
  return std::max(1, usable_cores() / static_cast<int>(choice.ordinals.size()));
}

std::string_view name(DeviceKind kind) { return kind == DeviceKind::Cpu ? "cpu" : "cuda"; }

Result<int> cuda_devices() {
  TANDEM_ASSIGN(const CudaLibrary* const cuda, cuda_library());
  Error error;
  const int count = cuda->device_count(&error);
  if (count < 0) return fail(std::move(error));
  if (count == 0) {
    return fail(ErrorKind::Unsupported,
                "[device] no CUDA device is visible; use --device cpu, or see "
                "CUDA_VISIBLE_DEVICES");
  }
  return count;
}

Result<void> check_devices(const DeviceChoice& choice) {
  const auto refuse = [](std::string what) {
    return fail(ErrorKind::Invalid, "[devices] " + what, "--devices");
  };
  if (choice.ordinals.empty()) return refuse("no rank; --tp 1 or more and one device for each rank work");
  if (choice.cpu_threads < 0) {
    return fail(ErrorKind::Invalid,
                fmt::format("[devices] cpu-threads = {}; 1 or more, or 0 for all cores", choice.cpu_threads),
                "--cpu-threads");
  }
  std::set<int> seen;
  for (const int ordinal : choice.ordinals) {
    if (ordinal < 0 || ordinal >= kMaxOrdinals) {
      return refuse(fmt::format("device {} of {}; ordinals are 0 to {}", ordinal, list(choice.ordinals),
                                kMaxOrdinals - 1));
    }
    if (!seen.insert(ordinal).second) {
      return refuse(fmt::format("device {} twice in {}; every rank needs a device of its own", ordinal,
                                list(choice.ordinals)));
    }
  }
  if (choice.kind == DeviceKind::Cpu) {
    if (choice.all_reduce == comm::AllReduce::Auto) return {};
    return fail(ErrorKind::Unsupported,
                fmt::format("[all-reduce] {} is between CUDA ranks; auto works, or --device cuda", comm::name(choice.all_reduce)), "--all-reduce");
  }
  if (choice.ops == OpsKind::Reference) {
    return fail(ErrorKind::Unsupported, "[ops] reference operators run on the CPU; use --device cpu",
                "--ops");
  }
  TANDEM_ASSIGN(const int visible, cuda_devices());
  if (static_cast<int>(choice.ordinals.size()) > visible) {
    return refuse(fmt::format("{} ranks, but {} CUDA devices are visible; --tp {} at most works",
                              choice.ordinals.size(), visible, visible));
  }
  for (const int ordinal : choice.ordinals) {
    if (ordinal >= visible) {
      return refuse(fmt::format("device {} of {}; {} CUDA devices are visible, 0 to {}", ordinal,
                                list(choice.ordinals), visible, visible - 1));
    }
  }
  if (choice.ordinals.size() == 1) return {};
  TANDEM_ASSIGN(const CudaLibrary* const cuda, cuda_library());
  const ops::cuda::PeerGroupOptions peers = peers_of(choice);
  if (Error error; !cuda->check_peers(&peers, &error)) return fail(std::move(error));
  return {};
}

Result<std::unique_ptr<ops::Backend>> make_backend(const DeviceChoice& choice, RankId rank) {
  const int ordinal = choice.ordinals[static_cast<std::size_t>(rank.value)];
  if (choice.kind == DeviceKind::Cuda) {
    TANDEM_ASSIGN(const CudaLibrary* const cuda, cuda_library());
    std::unique_ptr<ops::Backend> backend;
    std::string note;
    Error error;
    if (!cuda->make_backend(ordinal, &backend, &note, &error)) return fail(std::move(error));
    log_info("[rank {}] {}", rank.value, note);
    return backend;
  }
  if (choice.ops == OpsKind::Reference) return ops::make_reference_backend();
  return ops::make_cpu_backend({.threads = cpu_threads_of(choice), .all_threads = all_cpu_threads_of(choice)});
}

Result<std::shared_ptr<comm::Group>> make_group(const DeviceChoice& choice, Nanoseconds init_deadline,
                                                Nanoseconds step_deadline) {
  const int world = static_cast<int>(choice.ordinals.size());
  if (world == 1) return comm::make_world_of_one();
  if (choice.kind == DeviceKind::Cuda) {
    TANDEM_ASSIGN(const CudaLibrary* const cuda, cuda_library());
    ops::cuda::PeerGroupOptions peers = peers_of(choice);
    peers.join_deadline = init_deadline;
    peers.collective_deadline = step_deadline;
    std::shared_ptr<comm::Group> group;
    Error error;
    if (!cuda->make_group(&peers, &group, &error)) return fail(std::move(error));
    return group;
  }
  return comm::make_shared_memory({.world = world,
                                   .join_deadline = init_deadline,
                                   .collective_deadline = step_deadline,
                                   .spin = spin_of(choice)});
}

Result<std::string> tune_cuda(const ops::cuda::TuneOptions& options) {
  TANDEM_TRY(check_devices({.kind = DeviceKind::Cuda, .ordinals = {options.ordinal}}));
  TANDEM_ASSIGN(const CudaLibrary* const cuda, cuda_library());
  std::string table;
  Error error;
  if (!cuda->tune(&options, &table, &error)) return fail(std::move(error));
  return table;
}

}  // namespace tandem::rank
