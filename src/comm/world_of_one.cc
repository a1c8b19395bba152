#include "comm/world_of_one.h"

#include <mutex>
#include <optional>

namespace tandem::comm {
namespace {

struct Abort {
  std::mutex mutex;
  std::optional<Error> reason;

  Result<void> check() {
    const std::lock_guard lock(mutex);
    if (reason) return fail(ErrorKind::Poisoned, reason->message);
    return {};
  }
};

class WorldOfOne final : public Communicator {
 public:
  WorldOfOne(std::shared_ptr<Abort> abort, Progress* progress)
      : abort_(std::move(abort)), sequence_(progress) {}

  RankId rank() const override { return RankId{0}; }
  int world() const override { return 1; }
  Result<void> all_reduce(bf16*, std::int64_t elements) override {
    return count(Collective::AllReduce, elements);
  }
  Result<void> broadcast(std::int32_t*, std::int64_t elements) override {
    return count(Collective::Broadcast, elements);
  }
  Result<void> barrier() override { return count(Collective::Barrier, 0); }
  SequenceMark sequence() const override { return sequence_.mark(); }

 private:
  Result<void> count(Collective kind, std::int64_t elements) {
    sequence_.begin(kind, elements);
    sequence_.end();
    return abort_->check();
  }

  std::shared_ptr<Abort> abort_;
  Sequence sequence_;
};

class GroupOfOne final : public Group {
 public:
  int world() const override { return 1; }
  Result<std::unique_ptr<Communicator>> join(RankId rank, Progress* progress, void*) override {
    if (rank.value != 0) return fail(ErrorKind::Invalid, fmt_rank(rank));
    TANDEM_TRY(abort_->check());
    return std::make_unique<WorldOfOne>(abort_, progress);
  }
  void abort(const Error& reason) noexcept override {
    const std::lock_guard lock(abort_->mutex);
    if (!abort_->reason) abort_->reason = reason;
  }

 private:
  static std::string fmt_rank(RankId rank) {
    return "[comm] rank " + std::to_string(rank.value) + " cannot join a world of one; only rank 0 can";
  }
  std::shared_ptr<Abort> abort_ = std::make_shared<Abort>();
};

}  // namespace

std::shared_ptr<Group> make_world_of_one() { return std::make_shared<GroupOfOne>(); }

}  // namespace tandem::comm
