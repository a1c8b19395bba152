#include "ops/cuda/peer_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "comm/world_of_one.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/test_tools.h"

// Needs two CUDA devices: gates/device.sh p1.
namespace tandem::ops::cuda {
namespace {

using comm::AllReduce;
using ::testing::HasSubstr;

constexpr int kWorld = 2;
constexpr std::size_t kBytes = 8u << 20;

PeerGroupOptions options_for(AllReduce choice, std::uint64_t first_call = 1) {
  return {.ordinals = {0, 1}, .all_reduce = choice, .join_deadline = std::chrono::seconds(60),
          .collective_deadline = std::chrono::seconds(10), .one_shot_bytes = 1 << 20, .first_call = first_call};
}

// One rank as a test sees it: a device, a communicator, and room for a message.
struct Rank {
  int index = 0;
  std::unique_ptr<CudaBackend> backend;
  std::unique_ptr<comm::Communicator> comm;
  comm::Progress progress;
  bf16* data = nullptr;

  std::vector<bf16> pull(std::int64_t n) {
    std::vector<bf16> values(static_cast<std::size_t>(n));
    EXPECT_TRUE(backend->copy_to_host(values.data(), data, values.size() * sizeof(bf16)));
    return values;
  }
  void push(const std::vector<bf16>& values) { EXPECT_TRUE(backend->copy_to_device(data, values.data(), values.size() * sizeof(bf16))); }
};

void run_ranks(comm::Group& group, const std::function<void(Rank&)>& body) {
  std::vector<std::jthread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&group, &body, r] {
      Rank rank{.index = r};
      rank.backend = CudaBackend::open(r).value();
      rank.data = static_cast<bf16*>(rank.backend->allocate(kBytes, MemoryUse::Scratch, "message").value());
      auto comm = group.join(RankId{r}, &rank.progress, rank.backend->stream());
      ASSERT_TRUE(comm.has_value()) << comm.error().message;
      rank.comm = std::move(*comm);
      body(rank);
      rank.comm.reset();
    });
  }
}

std::shared_ptr<comm::Group> group_of(const PeerGroupOptions& options) {
  auto group = make_peer_group(options);
  EXPECT_TRUE(group.has_value()) << group.error().message;
  return *group;
}

// A rank's message of a round: bf16 of mixed sizes, some of which cancel.
std::vector<bf16> message(int rank, int round, std::int64_t n) {
  std::mt19937 random(static_cast<unsigned>(rank * 7919 + round * 104729 + 1));
  std::vector<bf16> values(static_cast<std::size_t>(n));
  for (bf16& x : values) {
    const unsigned bits = random();
    x = to_bf16((static_cast<float>(bits >> 8) / (1 << 24) - 0.5f) * static_cast<float>(1 << (bits % 9)));
  }
  return values;
}

std::int64_t size_of_round(std::mt19937& random, int round) {
  constexpr std::int64_t kEdges[] = {1, 2, 3, 4, 5, 7, 8, 2559, 2560, 1 << 19, (1 << 19) + 1, 3 << 19};
  if (round % 3 == 0) return kEdges[(round / 3) % std::size(kEdges)];
  return 1 + random() % (round % 5 == 0 ? 1'500'000 : 20'000);
}

// Keeps a device or a host thread busy for a random time, so that ranks come in any order.
void delay(Rank& rank, std::mt19937& random) {
  for (unsigned i = random() % 50; i > 0; --i) std::this_thread::yield();
  if (random() % 4 != 0) return;
  EXPECT_TRUE(rank.backend->fill_bytes(reinterpret_cast<std::byte*>(rank.data) + kBytes / 2, 1, random() % (kBytes / 2) + 1));
}

class Choice : public ::testing::TestWithParam<AllReduce> {};
INSTANTIATE_TEST_SUITE_P(Choices, Choice, ::testing::Values(AllReduce::OneShot, AllReduce::Nccl, AllReduce::Auto),
                         [](const auto& given) { return std::string(name(given.param)); });

// proves R7.7: random sizes, random delays, and flags that wrap
TEST_P(Choice, AllReduceAddsInRankOrderAndRoundsOnce) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{0xfffffffd}}) {
    auto group = group_of(options_for(GetParam(), first));
    std::vector<std::uint64_t> hashes(kWorld);
    run_ranks(*group, [&](Rank& rank) {
      std::mt19937 sizes(11);  // equal on all ranks
      std::mt19937 delays(static_cast<unsigned>(100 + rank.index));
      for (int round = 0; round < 60; ++round) {
        const std::int64_t n = size_of_round(sizes, round);
        const std::vector<bf16> mine = message(rank.index, round, n), theirs = message(1 - rank.index, round, n);
        rank.push(mine);
        delay(rank, delays);
        const auto done = rank.comm->all_reduce(rank.data, n);
        ASSERT_TRUE(done.has_value()) << done.error().message;
        const std::vector<bf16> sum = rank.pull(n);
        ASSERT_TRUE(rank.comm->check().has_value()) << rank.comm->check().error().message;
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < sum.size(); ++i) wrong += sum[i] != to_bf16(to_float(mine[i]) + to_float(theirs[i]));
        ASSERT_EQ(wrong, 0) << "round " << round << ", " << n << " elements, first call " << first;
      }
      hashes[static_cast<std::size_t>(rank.index)] = rank.comm->sequence().hash;
      EXPECT_EQ(rank.progress.text().substr(0, 26), "after all_reduce number 60");
    });
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

// Many calls in flight at once, none of them waited for: slots are never written before they are read.
TEST_P(Choice, CallsInFlightDoNotMeetEachOther) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{0xffffff9d}}) {
    auto group = group_of(options_for(GetParam(), first));
    run_ranks(*group, [&](Rank& rank) {
      constexpr int kCalls = 200;
      std::vector<bf16> ones(kCalls * 2560, to_bf16(1.0f));
      rank.push(ones);
      std::mt19937 delays(static_cast<unsigned>(rank.index));
      for (int call = 0; call < kCalls; ++call) {
        for (unsigned i = delays() % 20; i > 0; --i) std::this_thread::yield();
        ASSERT_TRUE(rank.comm->all_reduce(rank.data + call * 2560, 2560 - 8 * (call % 100)).has_value());
      }
      const std::vector<bf16> sums = rank.pull(kCalls * 2560);
      ASSERT_TRUE(rank.comm->check().has_value());
      for (int call = 0; call < kCalls; ++call)
        for (int i = 0; i < 2560; ++i) ASSERT_EQ(to_float(sums[static_cast<std::size_t>(call * 2560 + i)]), i < 2560 - 8 * (call % 100) ? 2.0f : 1.0f);
    });
  }
}

// proves R1.7
TEST_P(Choice, BroadcastGivesEveryRankTheIdsOfRankZero) {
  auto group = group_of(options_for(GetParam(), 0xfffffffd));
  run_ranks(*group, [&](Rank& rank) {
    for (const int n : {1, 2, 3, 64, 511, 16384, 16385, 40000}) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
      for (int i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = rank.index * 100000 + i;
      ASSERT_TRUE(rank.backend->copy_to_device(rank.data, ids.data(), ids.size() * 4));
      ASSERT_TRUE(rank.comm->broadcast(reinterpret_cast<std::int32_t*>(rank.data), n).has_value());
      ASSERT_TRUE(rank.backend->copy_to_host(ids.data(), rank.data, ids.size() * 4));
      ASSERT_TRUE(rank.comm->check().has_value());
      for (int i = 0; i < n; ++i) ASSERT_EQ(ids[static_cast<std::size_t>(i)], i) << n;
    }
    ASSERT_TRUE(rank.comm->barrier().has_value());
  });
}

// proves R3.2: a peer that never comes does not hold this rank once the group is aborted
TEST_P(Choice, AbortEndsAWaitOnTheDevice) {
  for (int round = 0; round < 3; ++round) {
    auto group = group_of(options_for(GetParam()));
    std::atomic<bool> waits{false};
    run_ranks(*group, [&](Rank& rank) {
      if (rank.index == 1) {
        while (!waits.load()) std::this_thread::yield();
        group->abort({ErrorKind::Device, "rank 1 burns"});
        return;
      }
      const std::int64_t n = round == 2 ? 1'000'000 : 2560;
      ASSERT_TRUE(rank.comm->all_reduce(rank.data, n).has_value());
      while (rank.progress.text().substr(0, 22) != "in all_reduce number 1") std::this_thread::yield();
      waits.store(true);
      EXPECT_TRUE(rank.backend->synchronize().has_value());
      const auto ended = rank.comm->check();
      ASSERT_FALSE(ended.has_value());
      EXPECT_EQ(ended.error().kind, ErrorKind::Poisoned);
      const auto next = rank.comm->all_reduce(rank.data, n);
      ASSERT_FALSE(next.has_value());
      EXPECT_EQ(next.error().message, "rank 1 burns");
    });
  }
}

// proves R3.2
TEST(OneShot, APeerThatNeverComesIsNamedAtTheDeadline) {
  PeerGroupOptions options = options_for(AllReduce::OneShot);
  options.collective_deadline = std::chrono::milliseconds(50);
  auto group = group_of(options);
  run_ranks(*group, [&](Rank& rank) {
    if (rank.index == 1) return;
    ASSERT_TRUE(rank.comm->all_reduce(rank.data, 5000).has_value());
    EXPECT_TRUE(rank.backend->synchronize().has_value());
    const auto late = rank.comm->check();
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().kind, ErrorKind::Deadline);
    EXPECT_THAT(late.error().message, HasSubstr("rank 0 waited 50 ms in all_reduce number 1 (5000 elements) for rank 1"));
  });
}

// proves R2.6
TEST(OneShot, DifferentCallsAreNoticed) {
  for (const bool other_kind : {false, true}) {
    auto group = group_of(options_for(AllReduce::OneShot));
    std::atomic<int> noticed{0};
    run_ranks(*group, [&](Rank& rank) {
      const bool odd = rank.index == 1;
      if (odd && other_kind)
        ASSERT_TRUE(rank.comm->broadcast(reinterpret_cast<std::int32_t*>(rank.data), 320).has_value());
      else
        ASSERT_TRUE(rank.comm->all_reduce(rank.data, odd ? 328 : 320).has_value());
      EXPECT_TRUE(rank.backend->synchronize().has_value());
      const auto checked = rank.comm->check();
      if (checked.has_value()) return;
      if (checked.error().kind == ErrorKind::Protocol) {
        noticed.fetch_add(1);
        EXPECT_THAT(checked.error().message, HasSubstr("collective number 1"));
      }
    });
    EXPECT_GE(noticed.load(), 1);
  }
}

// The fused stage gives the bits of its parts, in residual and result, and both ranks have the same.
TEST(OneShot, FusedNormEqualsAllReduceThenNorm) {
  auto fused_group = group_of(options_for(AllReduce::OneShot, 0xfffffff0));
  auto plain_group = group_of(options_for(AllReduce::Nccl));
  std::vector<std::vector<bf16>> results(kWorld);
  run_ranks(*fused_group, [&](Rank& rank) {
    auto plain = plain_group->join(RankId{rank.index}, nullptr, rank.backend->stream());
    ASSERT_TRUE(plain.has_value()) << plain.error().message;
    for (const std::int64_t hidden : {96, 2560, 4096}) {
      for (const std::int64_t tokens : {1, 3, 64, 130, 300}) {
        const std::int64_t n = tokens * hidden;
        const auto room = [&](std::int64_t bytes) { return rank.backend->allocate(static_cast<std::size_t>(bytes), MemoryUse::Scratch, "t").value(); };
        std::vector<float> weight(static_cast<std::size_t>(hidden));
        for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.01f * static_cast<float>(i % 37) - 0.2f;
        const float* device_weight = rank.backend->load_vector(weight, "w").value();
        std::vector<bf16> got[2], residual_got[2];
        for (const bool fused : {true, false}) {
          auto* residual = static_cast<bf16*>(room(n * 2));
          auto* y = static_cast<bf16*>(room(n * 2));
          rank.push(message(rank.index, static_cast<int>(n % 1000), n));
          const std::vector<bf16> start = message(9, 3, n);  // equal on all ranks
          ASSERT_TRUE(rank.backend->copy_to_device(residual, start.data(), start.size() * 2));
          ASSERT_TRUE(rank.backend->reduce_add_norm({.partial = dense(rank.data, tokens, hidden), .residual = dense(residual, tokens, hidden),
                                                     .weight = device_weight, .y = dense(y, tokens, hidden), .eps = 1e-6f,
                                                     .comm = fused ? rank.comm.get() : plain->get()}));
          got[fused].resize(static_cast<std::size_t>(n));
          residual_got[fused].resize(static_cast<std::size_t>(n));
          ASSERT_TRUE(rank.backend->copy_to_host(got[fused].data(), y, got[fused].size() * 2));
          ASSERT_TRUE(rank.backend->copy_to_host(residual_got[fused].data(), residual, got[fused].size() * 2));
        }
        ASSERT_TRUE(rank.comm->check().has_value());
        EXPECT_TRUE(got[0] == got[1]) << tokens << " x " << hidden;
        EXPECT_TRUE(residual_got[0] == residual_got[1]) << tokens << " x " << hidden;
        results[static_cast<std::size_t>(rank.index)].insert(results[static_cast<std::size_t>(rank.index)].end(), got[1].begin(), got[1].end());
      }
    }
    ASSERT_TRUE((*plain)->barrier().has_value());
  });
  EXPECT_TRUE(results[0] == results[1]);
}

// proves R3.2: a join that lacks a rank ends at its deadline
TEST(OneShot, AJoinThatLacksARankEndsAtItsDeadline) {
  PeerGroupOptions options = options_for(AllReduce::Auto);
  options.join_deadline = std::chrono::milliseconds(200);
  auto group = group_of(options);
  auto backend = CudaBackend::open(1).value();
  const auto comm = group->join(RankId{1}, nullptr, backend->stream());
  ASSERT_FALSE(comm.has_value());
  EXPECT_EQ(comm.error().kind, ErrorKind::Deadline);
}

}  // namespace
}  // namespace tandem::ops::cuda
