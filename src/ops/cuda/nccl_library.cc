#include "ops/cuda/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#if __has_include(<nccl.h>)
#include <nccl.h>
#define TANDEM_HAS_NCCL 1
#else
#define TANDEM_HAS_NCCL 0
#endif

namespace tandem::ops::cuda {

#if TANDEM_HAS_NCCL
namespace {

constexpr Nanoseconds kCallLimit = std::chrono::seconds(30);   // of one call that connects ranks
constexpr Nanoseconds kCloseLimit = std::chrono::seconds(1);

// Loaded once and never unloaded: its threads and kernels may run until the process ends.
struct Library {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  std::string failure;

  Library() {
    // A program that ends while NVLink multicast is in use can take the host's devices out of service.
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      failure = fmt::format("NCCL cannot be loaded ({}); install libnccl2, or name its folder in LD_LIBRARY_PATH (Python "
                            "packages keep it in nvidia/nccl/lib)",
                            dlerror());
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) failure = fmt::format("libnccl.so.2 lacks {}; version 2.18 or later works", name);
    };
    find(get_unique_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRankConfig");
    find(async_error, "ncclCommGetAsyncError");
    find(finalize, "ncclCommFinalize");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(all_reduce, "ncclAllReduce");
    find(broadcast, "ncclBroadcast");
    find(error_string, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

ncclComm_t comm_of(void* comm) { return static_cast<ncclComm_t>(comm); }

TimePoint now() { return std::chrono::steady_clock::now(); }

Error nccl_error(const char* what, ncclResult_t status) {
  return {ErrorKind::Device, fmt::format("[comm] NCCL {}: {} ({})", what, library().error_string(status), library().last_error(nullptr))};
}

}  // namespace

Result<void> nccl_available() {
  if (library().failure.empty()) return {};
  return fail(ErrorKind::Unsupported, "[comm] " + library().failure);
}

Result<NcclId> nccl_make_id() {
  ncclUniqueId id;
  if (const ncclResult_t status = library().get_unique_id(&id); status != ncclSuccess) return fail(nccl_error("id", status));
  return NcclId(id.internal, id.internal + sizeof id.internal);
}

Result<std::shared_ptr<NcclRank>> NcclRank::open(const NcclId& id, int world, int rank, cudaStream_t stream, TimePoint deadline,
                                                 const std::atomic<bool>& abandoned) {
  std::shared_ptr<NcclRank> made(new NcclRank(rank, stream));
  ncclUniqueId unique;
  std::memcpy(unique.internal, id.data(), sizeof unique.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclResult_t status = library().init(&comm, world, unique, rank, &config);
  made->comm_ = comm;
  while (status == ncclInProgress) {
    if (const ncclResult_t asked = library().async_error(comm, &status); asked != ncclSuccess) status = asked;
    if (status != ncclInProgress) break;
    if (abandoned.load() || now() >= deadline) {
      made->abort();
      if (abandoned.load()) return fail(ErrorKind::Poisoned, "[comm] NCCL's start was given up");
      return fail(ErrorKind::Deadline, fmt::format("[comm] rank {} of {} waited for the others to join NCCL until its deadline", rank, world));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (status == ncclSuccess) return made;
  Error error = nccl_error("start", status);
  made->abort();
  return fail(std::move(error));
}

NcclRank::~NcclRank() {
  if (comm_ == nullptr || aborted_.load()) return;
  ncclComm_t const comm = comm_of(comm_);
  ncclResult_t status = library().finalize(comm);
  for (const TimePoint deadline = now() + kCloseLimit; status == ncclInProgress && now() < deadline;) {
    if (library().async_error(comm, &status) != ncclSuccess) break;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (status == ncclSuccess)
    library().destroy(comm);
  else
    library().abort(comm);
}

// A non-blocking call may return before its ranks are connected.
Result<void> NcclRank::settle(int given, const char* what, TimePoint deadline) {
  auto status = static_cast<ncclResult_t>(given);
  while (status == ncclInProgress) {
    if (aborted_.load()) return fail(ErrorKind::Poisoned, "[comm] NCCL was aborted");
    if (const ncclResult_t asked = library().async_error(comm_of(comm_), &status); asked != ncclSuccess) status = asked;
    if (status == ncclInProgress && now() >= deadline)
      return fail(ErrorKind::Deadline, fmt::format("[comm] rank {} waited too long for NCCL's {} to be queued", rank_, what));
  }
  if (status == ncclSuccess) return {};
  return fail(nccl_error(what, status));
}

Result<void> NcclRank::all_reduce(void* data, std::int64_t elements) {
  const std::lock_guard lock(mutex_);
  if (aborted_.load()) return fail(ErrorKind::Poisoned, "[comm] NCCL was aborted");
  return settle(library().all_reduce(data, data, static_cast<std::size_t>(elements), ncclBfloat16, ncclSum, comm_of(comm_), stream_),
                "all_reduce", now() + kCallLimit);
}

Result<void> NcclRank::broadcast(void* ids, std::int64_t elements) {
  const std::lock_guard lock(mutex_);
  if (aborted_.load()) return fail(ErrorKind::Poisoned, "[comm] NCCL was aborted");
  return settle(library().broadcast(ids, ids, static_cast<std::size_t>(elements), ncclInt32, 0, comm_of(comm_), stream_), "broadcast",
                now() + kCallLimit);
}

Result<void> NcclRank::check() {
  const std::lock_guard lock(mutex_);
  if (aborted_.load()) return fail(ErrorKind::Poisoned, "[comm] NCCL was aborted");
  ncclResult_t status = ncclSuccess;
  if (const ncclResult_t asked = library().async_error(comm_of(comm_), &status); asked != ncclSuccess) status = asked;
  if (status == ncclSuccess || status == ncclInProgress) return {};
  return fail(nccl_error("collective", status));
}

// The rank's thread may be inside a call that waits for room on its stream: it gets a moment to come out, then NCCL is
// ended all the same.
void NcclRank::abort() noexcept {
  if (aborted_.exchange(true)) return;
  const bool locked = mutex_.try_lock_for(std::chrono::milliseconds(200));
  if (comm_ != nullptr) library().abort(comm_of(comm_));
  if (locked) mutex_.unlock();
}

#else

Result<void> nccl_available() { return fail(ErrorKind::Unsupported, "[comm] this build has no NCCL: nccl.h was not found when it was made"); }
Result<NcclId> nccl_make_id() {
  TANDEM_TRY(nccl_available());
  return NcclId{};
}
Result<std::shared_ptr<NcclRank>> NcclRank::open(const NcclId&, int, int, cudaStream_t, TimePoint, const std::atomic<bool>&) {
  TANDEM_TRY(nccl_available());
  return std::shared_ptr<NcclRank>();
}
NcclRank::~NcclRank() = default;
Result<void> NcclRank::settle(int, const char*, TimePoint) { return nccl_available(); }
Result<void> NcclRank::all_reduce(void*, std::int64_t) { return nccl_available(); }
Result<void> NcclRank::broadcast(void*, std::int64_t) { return nccl_available(); }
Result<void> NcclRank::check() { return nccl_available(); }
void NcclRank::abort() noexcept {}

#endif

}  // namespace tandem::ops::cuda
