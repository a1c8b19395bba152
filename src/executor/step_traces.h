#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "rank/faults.h"
#include "rank/model_rank.h"

// What the tests of real ranks share, on CPU ranks and on CUDA ranks.
namespace tandem::executor::testing {

// What every rank did in every step. `add` may be called from every rank's thread.
class Traces {
 public:
  struct Entry {
    std::uint64_t collectives = 0, collective_hash = 0;
    std::vector<std::uint64_t> residual_hashes;
    std::vector<std::byte> slots;  // recurrent states and conv windows, trash slot and all
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  void add(const rank::StepTrace& trace) {
    Entry entry{trace.collectives, trace.collective_hash, {trace.residual_hashes.begin(), trace.residual_hashes.end()}, {}};
    const auto slot_bytes = static_cast<std::size_t>(trace.pools->slot_bytes());
    entry.slots.resize((static_cast<std::size_t>(trace.pools->slots()) + 1) * slot_bytes);
    EXPECT_TRUE(trace.backend->copy_to_host(entry.slots.data(), trace.pools->slot(SlotId{0}), entry.slots.size()));
    const std::lock_guard lock(mutex_);
    steps_[trace.step][trace.rank.value] = std::move(entry);
  }

  // Number of steps, after a look that all ranks agree on every one.
  std::size_t agree(int world) {
    const std::lock_guard lock(mutex_);
    for (const auto& [step, ranks] : steps_) {
      EXPECT_EQ(ranks.size(), static_cast<std::size_t>(world)) << "step " << step;
      for (const auto& [rank, entry] : ranks) {
        const Entry& first = ranks.begin()->second;
        EXPECT_EQ(entry.collectives, first.collectives) << "step " << step << " rank " << rank;
        EXPECT_EQ(entry.collective_hash, first.collective_hash) << "step " << step << " rank " << rank;
        EXPECT_EQ(entry.residual_hashes, first.residual_hashes) << "step " << step << " rank " << rank;
        EXPECT_TRUE(entry.slots == first.slots) << "step " << step << " rank " << rank;
      }
    }
    return steps_.size();
  }
  std::uint64_t collectives(std::uint64_t step) { return steps_.at(step).begin()->second.collectives; }
  std::size_t residual_hashes(std::uint64_t step) { return steps_.at(step).begin()->second.residual_hashes.size(); }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::map<int, Entry>> steps_;
};

// The rank fails in its command number 7, a step.
class FailAtCommand7 final : public rank::Faults {
 public:
  explicit FailAtCommand7(int rank) : rank_(rank) {}
  Result<void> before(RankId rank, const rank::Command& command, rank::RankModel&) override {
    if (rank.value == rank_ && command.number == 7) return fail(ErrorKind::Device, "the device fell off the bus");
    return {};
  }

 private:
  int rank_;
};

}  // namespace tandem::executor::testing
