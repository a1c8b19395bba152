#include "comm/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tandem::comm {
namespace {

constexpr int kMaxWorld = 64;
constexpr std::int64_t kBlock = 256;  // elements summed at once: their float32 sums stay in the L1 cache

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// What a rank is about to do, shown to its peers.
struct Call {
  Collective kind = Collective::None;
  std::int64_t elements = 0;
  void* data = nullptr;
};

// Sums elements [begin, end) of all ranks' data in rank order and writes the sums to all of them.
void sum_share(std::span<const Call> calls, std::int64_t begin, std::int64_t end) {
  std::array<float, kBlock> sum;
  std::array<bf16, kBlock> rounded;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t count = std::min(kBlock, end - at);
    const bf16* first = static_cast<const bf16*>(calls[0].data) + at;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = to_float(first[i]);
    for (std::size_t r = 1; r < calls.size(); ++r) {
      const bf16* data = static_cast<const bf16*>(calls[r].data) + at;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += to_float(data[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) rounded[i] = to_bf16(sum[i]);
    for (const Call& call : calls) {
      std::memcpy(static_cast<bf16*>(call.data) + at, rounded.data(), count * sizeof(bf16));
    }
  }
}

// The state that all ranks' communicators share.
class Meeting {
 public:
  explicit Meeting(const SharedMemoryOptions& options)
      : options_(options), calls_(options.world), arrivals_(options.world, 0) {}

  int world() const { return options_.world; }
  std::span<const Call> calls() const { return calls_; }
  std::int64_t share(std::int64_t elements, int rank) const {
    return std::min(elements, (elements + world() - 1) / world() * rank);
  }

  // Shows `call` and returns when all ranks have come with the same one.
  Result<void> open(int rank, const Call& call, std::uint64_t number, Nanoseconds limit) {
    const TimePoint deadline = std::chrono::steady_clock::now() + limit;
    std::unique_lock lock(mutex_);
    if (reason_) return fail(ErrorKind::Poisoned, reason_->message);
    calls_[rank] = call;
    const std::uint64_t met = met_.load(std::memory_order_relaxed);
    if (!arrive(rank)) {
      spin(lock, met);
      changed_.wait_until(lock, deadline, [&] { return met_.load() != met || reason_; });
      if (met_.load() == met && reason_) return fail(ErrorKind::Poisoned, reason_->message);
      if (met_.load() == met) return give_up(rank, call, number, limit);
    }
    lock.unlock();
    return compare(rank, number);
  }

  // Returns when all ranks have come; everyone who passed open() comes without waiting in between.
  void close(int rank) {
    std::unique_lock lock(mutex_);
    const std::uint64_t met = met_.load(std::memory_order_relaxed);
    if (arrive(rank)) return;
    spin(lock, met);
    changed_.wait(lock, [&] { return met_.load() != met; });
  }

  void abort(const Error& reason) {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
    changed_.notify_all();
  }

 private:
  // True for the last rank to come. Holds the mutex.
  bool arrive(int rank) {
    ++arrivals_[rank];
    if (++present_ < world()) return false;
    present_ = 0;
    met_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
    return true;
  }

  void spin(std::unique_lock<std::mutex>& lock, std::uint64_t met) {
    if (options_.spin == 0) return;
    lock.unlock();
    for (int i = 0; i < options_.spin && met_.load(std::memory_order_acquire) == met; ++i) pause_cpu();
    lock.lock();
  }

  // The deadline has passed: ends the group, naming who did not come. Holds the mutex.
  Result<void> give_up(int rank, const Call& call, std::uint64_t number, Nanoseconds limit) {
    std::string missing;
    for (int r = 0; r < world(); ++r) {
      if (arrivals_[r] >= arrivals_[rank]) continue;
      missing += fmt::format("{}rank {}", missing.empty() ? "" : ", ", r);
    }
    reason_ = Error{ErrorKind::Deadline,
                    fmt::format("[comm] rank {} waited {} ms in {} number {} ({} elements) for {}", rank,
                                std::chrono::duration_cast<std::chrono::milliseconds>(limit).count(),
                                name(call.kind), number, call.elements, missing)};
    changed_.notify_all();
    return fail(*reason_);
  }

  // Nobody writes calls_ between open() and close(), and a mismatch ends the group before anyone's
  // next open(): they are read without the mutex.
  Result<void> compare(int rank, std::uint64_t number) {
    const Call& mine = calls_[rank];
    for (int r = 0; r < world(); ++r) {
      const Call& theirs = calls_[r];
      if (theirs.kind == mine.kind && theirs.elements == mine.elements) continue;
      const Error reason{
          ErrorKind::Protocol,
          fmt::format("[comm] collective number {}: rank {} calls {} of {} elements, rank {} calls {} of "
                      "{} elements",
                      number, rank, name(mine.kind), mine.elements, r, name(theirs.kind), theirs.elements)};
      abort(reason);
      return fail(reason);
    }
    return {};
  }

  const SharedMemoryOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;              // one per rank
  std::vector<std::uint64_t> arrivals_;  // meetings each rank has come to
  int present_ = 0;                      // ranks at the present meeting
  std::atomic<std::uint64_t> met_{0};    // meetings that all ranks came to
  std::optional<Error> reason_;          // why the group ended
};

class SharedMemory final : public Communicator {
 public:
  SharedMemory(std::shared_ptr<Meeting> meeting, RankId rank, Nanoseconds limit, Progress* progress)
      : meeting_(std::move(meeting)), rank_(rank), limit_(limit), sequence_(progress) {}

  RankId rank() const override { return rank_; }
  int world() const override { return meeting_->world(); }

  Result<void> all_reduce(bf16* data, std::int64_t elements) override {
    return meet(Call{Collective::AllReduce, elements, data}, [&] {
      sum_share(meeting_->calls(), meeting_->share(elements, rank_.value),
                meeting_->share(elements, rank_.value + 1));
    });
  }

  Result<void> broadcast(std::int32_t* data, std::int64_t elements) override {
    return meet(Call{Collective::Broadcast, elements, data}, [&] {
      if (rank_.value != 0 && elements > 0)
        std::memcpy(data, meeting_->calls()[0].data, elements * sizeof(std::int32_t));
    });
  }

  Result<void> barrier() override {
    return meet(Call{Collective::Barrier, 0, nullptr}, [] {});
  }

  SequenceMark sequence() const override { return sequence_.mark(); }

 private:
  template <class Work>
  Result<void> meet(const Call& call, Work work) {
    const std::uint64_t number = sequence_.begin(call.kind, call.elements);
    TANDEM_TRY(meeting_->open(rank_.value, call, number, limit_));
    work();
    meeting_->close(rank_.value);
    sequence_.end();
    return {};
  }

  std::shared_ptr<Meeting> meeting_;
  RankId rank_;
  Nanoseconds limit_;
  Sequence sequence_;
};

class SharedMemoryGroup final : public Group {
 public:
  explicit SharedMemoryGroup(const SharedMemoryOptions& options)
      : options_(options), meeting_(std::make_shared<Meeting>(options)), joined_(options.world) {}

  int world() const override { return options_.world; }

  Result<std::unique_ptr<Communicator>> join(RankId rank, Progress* progress, void*) override {
    if (rank.value < 0 || rank.value >= world()) {
      return fail(ErrorKind::Invalid,
                  fmt::format("[comm] rank {} cannot join a world of {}; ranks are 0 to {}", rank.value,
                              world(), world() - 1));
    }
    if (joined_[rank.value].exchange(true)) {
      return fail(ErrorKind::Duplicate, fmt::format("[comm] rank {} joins a second time", rank.value));
    }
    TANDEM_TRY(meeting_->open(rank.value, Call{Collective::Barrier, 0, nullptr}, 0, options_.join_deadline));
    meeting_->close(rank.value);
    return std::make_unique<SharedMemory>(meeting_, rank, options_.collective_deadline, progress);
  }

  void abort(const Error& reason) noexcept override { meeting_->abort(reason); }

 private:
  const SharedMemoryOptions options_;
  std::shared_ptr<Meeting> meeting_;
  std::vector<std::atomic<bool>> joined_;
};

}  // namespace

Result<std::shared_ptr<Group>> make_shared_memory(const SharedMemoryOptions& options) {
  if (options.world < 1 || options.world > kMaxWorld) {
    return fail(ErrorKind::Invalid, fmt::format("[comm] a world of {} ranks; 1 to {} can share memory",
                                                options.world, kMaxWorld));
  }
  return std::make_shared<SharedMemoryGroup>(options);
}

}  // namespace tandem::comm
