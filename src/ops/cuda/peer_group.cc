#include "ops/cuda/peer_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "comm/shared_memory.h"
#include "ops/cuda/nccl_library.h"
#include "ops/cuda/one_shot.h"

namespace tandem::ops::cuda {
namespace {

constexpr Nanoseconds kLeaveLimit = std::chrono::seconds(1);
constexpr std::size_t kNcclWarmUpBytes = std::size_t{16} << 20;

TimePoint now() { return std::chrono::steady_clock::now(); }

// In pinned host memory that every device reaches.
struct Control {
  volatile std::uint32_t abort;
  PeerReport reports[kMaxPeers];
};

// What all ranks of a group share.
struct Shared {
  explicit Shared(const PeerGroupOptions& given, const comm::AllReducePlan& chosen, std::shared_ptr<comm::Group> meeting)
      : options(given), plan(chosen), host(std::move(meeting)), nccl(given.ordinals.size()) {}
  ~Shared() {
    if (control == nullptr) return;
    cudaSetDevice(control_device);
    cudaFreeHost(control);
  }

  int world() const { return static_cast<int>(options.ordinals.size()); }

  // Made by the first rank that comes.
  Result<Control*> make_control(int ordinal) {
    const std::lock_guard lock(mutex);
    if (control != nullptr) return control;
    void* memory = nullptr;
    TANDEM_TRY(checked(cudaHostAlloc(&memory, sizeof(Control), cudaHostAllocPortable | cudaHostAllocMapped), "pinned memory of the group"));
    std::memset(memory, 0, sizeof(Control));
    control = static_cast<Control*>(memory);
    control_device = ordinal;
    if (reason) control->abort = 1;
    return control;
  }

  Result<void> alive() {
    if (!aborted.load()) return {};
    const std::lock_guard lock(mutex);
    return fail(ErrorKind::Poisoned, reason ? reason->message : "[comm] the group was aborted");
  }

  // True once every rank that came has left, so that nobody writes to this one's memory any more.
  bool leave() {
    std::unique_lock lock(mutex);
    ++left;
    changed.notify_all();
    return changed.wait_until(lock, now() + kLeaveLimit, [&] { return left >= joined; });
  }

  const PeerGroupOptions options;
  const comm::AllReducePlan plan;
  const std::shared_ptr<comm::Group> host;  // where the rank threads meet at start-up

  std::mutex mutex;
  std::condition_variable changed;
  Control* control = nullptr;
  int control_device = 0;
  std::optional<Error> reason;
  std::atomic<bool> aborted{false};
  int joined = 0, left = 0;
  bool ending_nccl = false;  // a thread calls ncclCommAbort
  NcclId nccl_id;
  uint4* slots[kMaxPeers] = {};
  unsigned long long* meetings[kMaxPeers] = {};
  std::vector<std::shared_ptr<NcclRank>> nccl;
};

class PeerCommunicator final : public comm::Communicator {
 public:
  PeerCommunicator(std::shared_ptr<Shared> shared, RankId rank, comm::Progress* progress, cudaStream_t stream)
      : shared_(std::move(shared)), rank_(rank), progress_(progress), sequence_(progress), call_(shared_->options.first_call) {
    context_.stream = stream;
  }

  ~PeerCommunicator() override {
    cudaStreamSynchronize(context_.stream);
    const bool all_left = !joined_ || shared_->leave();
    if (all_left && memory_ != nullptr) cudaFree(memory_);
    if (!all_left) log_warn("[rank {}] a peer has not left the group: its slots stay until the process ends", rank_.value);
    const std::lock_guard lock(shared_->mutex);
    shared_->nccl[index()].reset();  // nccl_ holds it until the lock is open
  }

  // What Group::join does, on the rank's thread.
  Result<void> open() {
    const PeerGroupOptions& options = shared_->options;
    const TimePoint deadline = now() + options.join_deadline;
    TANDEM_ASSIGN(const auto host, shared_->host->join(rank_, nullptr));
    TANDEM_TRY(checked(cudaGetDevice(&context_.ordinal), "bound device"));
    if (context_.ordinal != options.ordinals[index()] || context_.stream == nullptr) {
      return fail(ErrorKind::Invalid, fmt::format("[comm] rank {} joins from device {}, whose stream {}; its device is {}", rank_.value,
                                                  context_.ordinal, context_.stream ? "is known" : "is not given", options.ordinals[index()]));
    }
    TANDEM_TRY(checked(cudaDeviceGetAttribute(&context_.multiprocessors, cudaDevAttrMultiProcessorCount, context_.ordinal), "multiprocessors"));
    TANDEM_TRY(load_one_shot());
    TANDEM_ASSIGN(Control* const control, shared_->make_control(context_.ordinal));
    link_.rank = rank_.value;
    link_.world = world();
    link_.report = &control->reports[rank_.value];
    link_.abort = &control->abort;
    link_.limit_ns = static_cast<unsigned long long>(options.collective_deadline.count());
    link_.words = shared_->plan.one_shot ? PeerLink::slot_words(shared_->plan.one_shot_bytes) : 0;
    if (shared_->plan.one_shot) TANDEM_TRY(make_slots());
    if (shared_->plan.nccl) TANDEM_TRY(open_nccl(*host, deadline));
    {
      const std::lock_guard lock(shared_->mutex);
      ++shared_->joined;
      joined_ = true;
    }
    TANDEM_TRY(host->barrier());
    std::copy_n(shared_->slots, kMaxPeers, link_.slots);
    std::copy_n(shared_->meetings, kMaxPeers, link_.meetings);
    TANDEM_TRY(warm_up(deadline));
    if (progress_ != nullptr) progress_->device.store(&link_.report->progress);
    return {};
  }

  RankId rank() const override { return rank_; }
  int world() const override { return shared_->world(); }

  Result<void> all_reduce(bf16* data, std::int64_t elements) override {
    TANDEM_TRY(begin(comm::Collective::AllReduce, elements));
    const comm::AllReducePlan& plan = shared_->plan;
    if (comm::takes_nccl(plan, elements * static_cast<std::int64_t>(sizeof(bf16)))) {
      TANDEM_TRY(mark(comm::Collective::AllReduce, elements, true));
      TANDEM_TRY(nccl_->all_reduce(data, elements));
      return mark(comm::Collective::AllReduce, elements, false);
    }
    const std::int64_t piece = (link_.words - 1) * kWordElements;
    return in_pieces(elements, piece, [&](const PeerCall& call, std::int64_t at, std::int64_t count) {
      return one_shot_all_reduce(context_, link_, call, data + at, count);
    });
  }

  Result<void> broadcast(std::int32_t* ids, std::int64_t elements) override {
    TANDEM_TRY(begin(comm::Collective::Broadcast, elements));
    if (!shared_->plan.one_shot) {
      TANDEM_TRY(mark(comm::Collective::Broadcast, elements, true));
      TANDEM_TRY(nccl_->broadcast(ids, elements));
      return mark(comm::Collective::Broadcast, elements, false);
    }
    return in_pieces(elements, kBroadcastIds, [&](const PeerCall& call, std::int64_t at, std::int64_t count) {
      return one_shot_broadcast(context_, link_, call, ids + at, count);
    });
  }

  Result<void> barrier() override {
    TANDEM_TRY(begin(comm::Collective::Barrier, 0));
    if (shared_->plan.one_shot) {
      TANDEM_TRY(one_shot_meet(context_, link_, ++meeting_, sequence_.number()));
    } else {
      TANDEM_TRY(mark(comm::Collective::Barrier, 0, true));
      TANDEM_TRY(nccl_->all_reduce(memory_, 8));
      TANDEM_TRY(mark(comm::Collective::Barrier, 0, false));
    }
    return wait_for_stream(now() + shared_->options.collective_deadline + std::chrono::seconds(1));
  }

  Result<void> check() override {
    const PeerReport& report = *link_.report;
    const std::uint32_t failure = report.failure;
    if (failure != 0) std::atomic_thread_fence(std::memory_order_acquire);
    const auto kind = static_cast<comm::Collective>(report.kind);
    switch (static_cast<PeerFailure>(failure)) {
      case PeerFailure::Late:
        return fail(ErrorKind::Deadline,
                    fmt::format("[comm] rank {} waited {} ms in {} number {} ({} elements) for rank {}", rank_.value,
                                link_.limit_ns / 1'000'000, name(kind), std::uint64_t{report.number}, std::uint32_t{report.elements},
                                std::uint32_t{report.peer}));
      case PeerFailure::Mismatch:
        return fail(ErrorKind::Protocol,
                    fmt::format("[comm] collective number {}: rank {} calls {} of {} elements, rank {} calls {} of {} elements",
                                std::uint64_t{report.number}, rank_.value, name(kind), std::uint32_t{report.elements},
                                std::uint32_t{report.peer}, name(static_cast<comm::Collective>(report.peer_kind)),
                                std::uint32_t{report.peer_elements}));
      case PeerFailure::Aborted:
        TANDEM_TRY(shared_->alive());
        return fail(ErrorKind::Poisoned, fmt::format("[comm] rank {} was ended in {} number {}: a peer gave up", rank_.value, name(kind),
                                                     std::uint64_t{report.number}));
      case PeerFailure::None: break;
    }
    TANDEM_TRY(shared_->alive());
    return nccl_ ? nccl_->check() : Result<void>{};
  }

  comm::SequenceMark sequence() const override { return sequence_.mark(); }

  Result<bool> reduce_add_norm(const ReduceAddNormArgs& args) {
    const std::int64_t elements = args.partial.size(0) * args.partial.size(1);
    const comm::AllReducePlan& plan = shared_->plan;
    if (elements == 0 || !plan.one_shot || elements * static_cast<std::int64_t>(sizeof(bf16)) > plan.one_shot_bytes) return false;
    TANDEM_TRY(shared_->alive());
    TANDEM_TRY(clear_slots_on_wrap());
    TANDEM_ASSIGN(const bool fused, one_shot_reduce_add_norm(context_, link_, {.call = call_, .number = sequence_.number() + 1}, args, resident_));
    if (!fused) return false;
    ++call_;
    sequence_.begin(comm::Collective::AllReduce, elements);
    sequence_.end();
    return true;
  }

 private:
  std::size_t index() const { return static_cast<std::size_t>(rank_.value); }

  // Slots and meeting words of this rank, and access to the others' memory.
  Result<void> make_slots() {
    for (const int peer : shared_->options.ordinals) {
      if (peer == context_.ordinal) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        continue;
      }
      TANDEM_TRY(checked(status, fmt::format("access of device {} to device {}", context_.ordinal, peer)));
    }
    const std::size_t bytes = static_cast<std::size_t>(link_.total_words()) * sizeof(uint4);
    const std::size_t meetings = kMaxPeers * sizeof(unsigned long long);
    TANDEM_TRY(checked(cudaMalloc(&memory_, bytes + meetings), fmt::format("{} bytes of one-shot slots", bytes)));
    TANDEM_TRY(checked(cudaMemsetAsync(memory_, 0, bytes + meetings, context_.stream), "one-shot slots"));
    TANDEM_TRY(checked(cudaStreamSynchronize(context_.stream), "one-shot slots"));
    slot_bytes_ = bytes;
    const std::lock_guard lock(shared_->mutex);
    shared_->slots[index()] = static_cast<uint4*>(memory_);
    shared_->meetings[index()] = reinterpret_cast<unsigned long long*>(static_cast<char*>(memory_) + bytes);
    return {};
  }

  Result<void> open_nccl(comm::Communicator& host, TimePoint deadline) {
    if (rank_.value == 0) {
      TANDEM_ASSIGN(NcclId id, nccl_make_id());
      const std::lock_guard lock(shared_->mutex);
      shared_->nccl_id = std::move(id);
    }
    TANDEM_TRY(host.barrier());
    TANDEM_ASSIGN(nccl_, NcclRank::open(shared_->nccl_id, world(), rank_.value, context_.stream, deadline, shared_->aborted));
    if (memory_ == nullptr) TANDEM_TRY(checked(cudaMalloc(&memory_, 256), "barrier word"));
    const std::lock_guard lock(shared_->mutex);
    shared_->nccl[index()] = nccl_;
    return {};
  }

  // One call of every kind and size class: whatever loads or connects late does it now. NCCL's first, on memory that
  // no peer writes to.
  Result<void> warm_up(TimePoint deadline) {
    if (nccl_) {
      void* memory = nullptr;
      TANDEM_TRY(checked(cudaMalloc(&memory, kNcclWarmUpBytes), "NCCL warm-up"));
      Result<void> done = checked(cudaMemsetAsync(memory, 0, kNcclWarmUpBytes, context_.stream), "NCCL warm-up");
      for (std::size_t bytes = 1024; done && bytes <= kNcclWarmUpBytes; bytes *= 4) {
        done = nccl_->all_reduce(memory, static_cast<std::int64_t>(bytes / sizeof(bf16)));
        if (done) done = wait_for_stream(deadline);
      }
      if (done) done = nccl_->broadcast(memory, 16);
      if (done) done = wait_for_stream(deadline);
      if (done) cudaFree(memory);
      TANDEM_TRY(done);
    }
    if (!shared_->plan.one_shot) return {};
    TANDEM_TRY(one_shot_meet(context_, link_, ++meeting_, 0));
    return wait_for_stream(deadline);
  }

  // Counts the collective. Nothing is queued in a group that has ended.
  Result<void> begin(comm::Collective kind, std::int64_t elements) {
    sequence_.begin(kind, elements);
    sequence_.end();
    return shared_->alive();
  }

  Result<void> mark(comm::Collective kind, std::int64_t elements, bool begins) {
    return mark_progress(context_, link_.report, kind, elements, sequence_.number(), begins);
  }

  Result<void> clear_slots_on_wrap() {
    if (!comm::starts_flags_anew(call_) || call_ == cleared_at_) return {};
    cleared_at_ = call_;
    TANDEM_TRY(one_shot_meet(context_, link_, ++meeting_, 0));
    TANDEM_TRY(checked(cudaMemsetAsync(memory_, 0, slot_bytes_, context_.stream), "clearing one-shot slots"));
    return one_shot_meet(context_, link_, ++meeting_, 0);
  }

  template <class Launch>
  Result<void> in_pieces(std::int64_t elements, std::int64_t piece, Launch launch) {
    for (std::int64_t at = 0; at < std::max<std::int64_t>(elements, 1); at += piece) {
      const std::int64_t count = std::min(piece, elements - at);
      TANDEM_TRY(clear_slots_on_wrap());
      const PeerCall call{.call = call_, .number = sequence_.number(), .first_piece = at == 0, .last_piece = at + count >= elements};
      TANDEM_TRY(launch(call, at, count));
      ++call_;
    }
    return {};
  }

  // The host waits without being caught in the driver: an abort or a deadline ends it.
  Result<void> wait_for_stream(TimePoint deadline) {
    for (;;) {
      const cudaError_t status = cudaStreamQuery(context_.stream);
      if (status == cudaSuccess) return check();
      if (status != cudaErrorNotReady) return checked(status, "collective");
      TANDEM_TRY(shared_->alive());
      if (now() >= deadline)
        return fail(ErrorKind::Deadline, fmt::format("[comm] rank {} waited for its device until the deadline of collective number {}", rank_.value,
                                                     sequence_.number()));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  std::shared_ptr<Shared> shared_;
  const RankId rank_;
  comm::Progress* progress_;
  comm::Sequence sequence_;
  Context context_;  // device, stream and multiprocessors only
  PeerLink link_;
  ResidentBlocks resident_;
  std::shared_ptr<NcclRank> nccl_;
  void* memory_ = nullptr;  // slots, then meeting words
  std::size_t slot_bytes_ = 0;
  bool joined_ = false;
  std::uint64_t call_;         // of the next one-shot call
  std::uint64_t cleared_at_ = 0;
  std::uint64_t meeting_ = 0;  // of the last meet()
};

class PeerGroup final : public comm::Group {
 public:
  explicit PeerGroup(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  ~PeerGroup() override {  // NCCL must not be ended while the process ends
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_until(lock, now() + 2 * kLeaveLimit, [&] { return !shared_->ending_nccl; });
  }

  int world() const override { return shared_->world(); }

  Result<std::unique_ptr<comm::Communicator>> join(RankId rank, comm::Progress* progress, void* stream) override {
    if (rank.value < 0 || rank.value >= world())
      return fail(ErrorKind::Invalid, fmt::format("[comm] rank {} cannot join a world of {}; ranks are 0 to {}", rank.value, world(), world() - 1));
    auto made = std::make_unique<PeerCommunicator>(shared_, rank, progress, static_cast<cudaStream_t>(stream));
    if (auto opened = made->open(); !opened) {
      abort(opened.error());  // peers may already wait for this rank
      return fail(std::move(opened.error()));
    }
    return made;
  }

  void abort(const Error& reason) noexcept override {
    {
      const std::lock_guard lock(shared_->mutex);
      if (shared_->aborted.exchange(true)) return;
      shared_->reason = reason;
      if (shared_->control != nullptr) shared_->control->abort = 1;
      shared_->ending_nccl = shared_->plan.nccl;
    }
    shared_->host->abort(reason);
    if (!shared_->plan.nccl) return;
    // ncclCommAbort waits for the device; the caller must not.
    std::thread([shared = shared_] {
      std::vector<std::shared_ptr<NcclRank>> ranks;
      {
        const std::lock_guard lock(shared->mutex);
        ranks = shared->nccl;
      }
      for (const auto& rank : ranks)
        if (rank) rank->abort();
      ranks.clear();
      const std::lock_guard lock(shared->mutex);
      shared->ending_nccl = false;
      shared->changed.notify_all();
    }).detach();
  }

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace

Result<comm::AllReducePlan> plan_peers(const PeerGroupOptions& options) {
  if (options.ordinals.size() > kMaxPeers)
    return fail(ErrorKind::Invalid, fmt::format("[tp] {} ranks; {} at most work on one host", options.ordinals.size(), kMaxPeers), "--tp");
  std::string unreachable;
  for (const int from : options.ordinals) {
    for (const int to : options.ordinals) {
      int reaches = 1;
      if (from != to) TANDEM_TRY(checked(cudaDeviceCanAccessPeer(&reaches, from, to), "asking for peer access"));
      if (reaches == 0 && unreachable.empty()) unreachable = fmt::format("device {} cannot reach the memory of device {}", from, to);
    }
  }
  const bool peers = unreachable.empty();
  Result<void> nccl;
  if (options.all_reduce != comm::AllReduce::OneShot) nccl = nccl_available();
  const std::int64_t one_shot_bytes =
      options.one_shot_bytes > 0 ? options.one_shot_bytes : comm::default_one_shot_bytes(static_cast<int>(options.ordinals.size()));
  const auto plan = comm::plan_all_reduce(options.all_reduce, peers, nccl.has_value(), one_shot_bytes);
  if (plan) {
    if (options.all_reduce == comm::AllReduce::Auto && !peers) log_info("[comm] {}: all-reduces go through NCCL", unreachable);
    if (options.all_reduce == comm::AllReduce::Auto && !nccl) log_info("{}; all-reduces are one-shot", nccl.error().message);
    return *plan;
  }
  const std::string why = options.all_reduce == comm::AllReduce::OneShot ? unreachable
                          : peers                                        ? nccl.error().message
                                                                         : unreachable + ", and " + nccl.error().message;
  return fail(ErrorKind::Unsupported,
              fmt::format("[all-reduce] {} with {} ranks: {}; {} works", name(options.all_reduce), options.ordinals.size(), why,
                          options.all_reduce == comm::AllReduce::OneShot ? "auto or nccl"
                          : peers                                        ? "oneshot"
                                                                         : "--tp 1"),
              "--all-reduce");
}

Result<std::shared_ptr<comm::Group>> make_peer_group(const PeerGroupOptions& options) {
  TANDEM_ASSIGN(const comm::AllReducePlan plan, plan_peers(options));
  TANDEM_ASSIGN(const std::shared_ptr<comm::Group> host, comm::make_shared_memory({.world = static_cast<int>(options.ordinals.size()),
                                                                                   .join_deadline = options.join_deadline,
                                                                                   .collective_deadline = options.join_deadline}));
  return std::make_shared<PeerGroup>(std::make_shared<Shared>(options, plan, host));
}

Result<bool> peer_reduce_add_norm(const ReduceAddNormArgs& args) {
  auto* const peers = dynamic_cast<PeerCommunicator*>(args.comm);
  if (peers == nullptr) return false;
  return peers->reduce_add_norm(args);
}

}  // namespace tandem::ops::cuda
