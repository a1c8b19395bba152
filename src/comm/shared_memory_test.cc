#include "comm/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "comm/world_of_one.h"

namespace tandem::comm {
namespace {

using testing::HasSubstr;

std::shared_ptr<Group> make_group(SharedMemoryOptions options) {
  auto group = make_shared_memory(options);
  EXPECT_TRUE(group.has_value());
  return *group;
}

// Runs `body` as every rank of the group, each on its own thread.
void run_ranks(Group& group, const std::function<void(Communicator&, Progress&)>& body) {
  std::vector<Progress> progress(group.world());
  std::vector<std::jthread> threads;
  for (int r = 0; r < group.world(); ++r) {
    threads.emplace_back([&, r] {
      auto comm = group.join(RankId{r}, &progress[r]);
      ASSERT_TRUE(comm.has_value()) << comm.error().message;
      body(**comm, progress[r]);
    });
  }
}

// Lets the other ranks run first, a random number of times: a delay without a clock.
void dawdle(std::mt19937& random) {
  for (unsigned i = random() % 20; i > 0; --i) std::this_thread::yield();
}

float value_of(int rank, int round, std::int64_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(rank * 7919 + round * 104729 + i * 31 + 1);
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return (static_cast<float>(x >> 8) / (1 << 24) - 0.5f) * static_cast<float>(1 << (x % 9));
}

class World : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, World, testing::Values(1, 2, 3, 4, 5, 8));

// proves R7.7
TEST_P(World, AllReduceAddsInRankOrderInFloatAndRoundsOnce) {
  const int world = GetParam();
  for (const int spin : {0, 200}) {
    auto group = make_group({.world = world, .spin = spin});
    run_ranks(*group, [&](Communicator& comm, Progress&) {
      std::mt19937 sizes(11);  // equal on all ranks
      std::mt19937 delays(100 + comm.rank().value);
      for (int round = 0; round < 60; ++round) {
        const std::int64_t n = round % 7 == 0 ? round / 7 : sizes() % 5000;
        std::vector<bf16> data(n);
        for (std::int64_t i = 0; i < n; ++i) data[i] = to_bf16(value_of(comm.rank().value, round, i));
        dawdle(delays);
        ASSERT_TRUE(comm.all_reduce(data.data(), n).has_value());
        for (std::int64_t i = 0; i < n; ++i) {
          float sum = round_bf16(value_of(0, round, i));
          for (int r = 1; r < world; ++r) sum += round_bf16(value_of(r, round, i));
          ASSERT_EQ(data[i], to_bf16(sum)) << "round " << round << " element " << i << " of " << n;
        }
      }
    });
  }
}

// proves R1.7
TEST_P(World, BroadcastGivesEveryRankTheIdsOfRankZero) {
  auto group = make_group({.world = GetParam()});
  run_ranks(*group, [&](Communicator& comm, Progress&) {
    std::mt19937 delays(comm.rank().value);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int32_t> ids(round, comm.rank().value * 1000 + round);
      dawdle(delays);
      ASSERT_TRUE(comm.broadcast(ids.data(), round).has_value());
      for (const std::int32_t id : ids) ASSERT_EQ(id, round);
    }
  });
}

// proves P2a gate 3
TEST_P(World, SequenceHashesAreEqualOnAllRanksAndTellCallsApart) {
  auto group = make_group({.world = GetParam()});
  std::vector<std::uint64_t> hashes(GetParam());
  run_ranks(*group, [&](Communicator& comm, Progress& progress) {
    std::vector<bf16> data(100);
    std::vector<std::int32_t> ids(100);
    ASSERT_EQ(comm.sequence().number, 0u);
    std::uint64_t last = comm.sequence().hash;
    const auto changed = [&] { return std::exchange(last, comm.sequence().hash) != comm.sequence().hash; };
    ASSERT_TRUE(comm.all_reduce(data.data(), 100).has_value() && changed());
    ASSERT_TRUE(comm.all_reduce(data.data(), 100).has_value() && changed());
    ASSERT_TRUE(comm.broadcast(ids.data(), 100).has_value() && changed());
    ASSERT_TRUE(comm.barrier().has_value() && changed());
    ASSERT_EQ(comm.sequence().number, 4u);
    EXPECT_EQ(progress.text(), "after barrier number 4 (0 elements)");
    hashes[comm.rank().value] = comm.sequence().hash;
  });
  for (const std::uint64_t hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

TEST(SequenceHash, DependsOnKindSizeAndOrder) {
  const auto hash = [](std::vector<std::pair<Collective, int>> calls) {
    Sequence sequence(nullptr);
    for (const auto& [kind, elements] : calls) sequence.begin(kind, elements);
    return sequence.mark().hash;
  };
  using enum Collective;
  EXPECT_NE(hash({{AllReduce, 8}}), hash({{AllReduce, 9}}));
  EXPECT_NE(hash({{AllReduce, 8}}), hash({{Broadcast, 8}}));
  EXPECT_NE(hash({{AllReduce, 8}, {AllReduce, 9}}), hash({{AllReduce, 9}, {AllReduce, 8}}));
  EXPECT_NE(hash({{AllReduce, 8}}), hash({{AllReduce, 8}, {AllReduce, 8}}));
  EXPECT_EQ(hash({{AllReduce, 8}, {Barrier, 0}}), hash({{AllReduce, 8}, {Barrier, 0}}));
}

// proves R3.2
TEST_P(World, AbortWakesEveryWait) {
  const int world = GetParam();
  if (world == 1) {  // nobody to wait for: the next call says so
    auto group = make_group({.world = 1});
    auto comm = group->join(RankId{0}, nullptr);
    group->abort({ErrorKind::Device, "rank 3 burns"});
    const auto result = (*comm)->barrier();
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ErrorKind::Poisoned);
    return;
  }
  auto group = make_group({.world = world});
  std::atomic<int> waiting{0};
  run_ranks(*group, [&](Communicator& comm, Progress& progress) {
    if (comm.rank().value == world - 1) {  // never comes; pulls the plug once the others are there
      while (waiting.load() < world - 1) std::this_thread::yield();
      group->abort({ErrorKind::Device, "rank 3 burns"});
      group->abort({ErrorKind::Device, "a later reason"});
    } else {
      waiting.fetch_add(1);
    }
    std::vector<bf16> data(64);
    for (int call = 0; call < 2; ++call) {
      const auto result = comm.all_reduce(data.data(), 64);
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().kind, ErrorKind::Poisoned);
      EXPECT_EQ(result.error().message, "rank 3 burns");
    }
    EXPECT_THAT(progress.text(), HasSubstr("in all_reduce"));
  });
}

// proves R3.2
TEST(SharedMemory, APeerThatNeverComesIsNamedAtTheDeadline) {
  auto group = make_group({.world = 3, .collective_deadline = std::chrono::milliseconds(20)});
  std::atomic<int> deadlines{0}, poisoned{0};
  run_ranks(*group, [&](Communicator& comm, Progress&) {
    if (comm.rank().value == 1) return;
    const auto result = comm.barrier();
    ASSERT_FALSE(result.has_value());
    EXPECT_THAT(result.error().message,
                HasSubstr("waited 20 ms in barrier number 1 (0 elements) for rank 1"));
    (result.error().kind == ErrorKind::Deadline ? deadlines : poisoned).fetch_add(1);
  });
  EXPECT_EQ(deadlines.load(), 1);
  EXPECT_EQ(poisoned.load(), 1);
}

// proves R3.2
TEST(SharedMemory, AJoinThatLacksARankEndsAtItsDeadline) {
  auto group = make_group({.world = 2, .join_deadline = std::chrono::milliseconds(20)});
  const auto comm = group->join(RankId{1}, nullptr);
  ASSERT_FALSE(comm.has_value());
  EXPECT_EQ(comm.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(comm.error().message, HasSubstr("for rank 0"));
}

// proves R2.6
TEST(SharedMemory, DifferentCallsEndTheGroupOnEveryRankAndTouchNoData) {
  for (const bool other_kind : {false, true}) {
    auto group = make_group({.world = 4});
    run_ranks(*group, [&](Communicator& comm, Progress&) {
      std::vector<bf16> data(40, to_bf16(1.5f));
      std::vector<std::int32_t> ids(32, comm.rank().value);
      const bool odd = comm.rank().value == 2;
      const auto result =
          odd && other_kind ? comm.broadcast(ids.data(), 32) : comm.all_reduce(data.data(), odd ? 33 : 32);
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().kind, ErrorKind::Protocol);
      EXPECT_THAT(result.error().message, HasSubstr("collective number 1"));
      for (const bf16 x : data) EXPECT_EQ(x, to_bf16(1.5f));
      for (const std::int32_t id : ids) EXPECT_EQ(id, comm.rank().value);
      const auto next = comm.barrier();
      ASSERT_FALSE(next.has_value());
      EXPECT_EQ(next.error().kind, ErrorKind::Poisoned);
    });
  }
}

// An abort at any moment leaves each all_reduce done on all ranks or on none.
TEST(SharedMemory, AnAbortNeverLeavesHalfASum) {
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const int world = 2 + seed % 3;
    auto group = make_group({.world = world});
    std::vector<int> done(world, 0);
    std::atomic<int> rounds{0};
    std::jthread aborter([&] {
      std::mt19937 random(seed);
      while (rounds.load() < seed % 7) std::this_thread::yield();
      dawdle(random);
      group->abort({ErrorKind::Device, "now"});
    });
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r) {
      threads.emplace_back([&, r] {
        auto comm = group->join(RankId{r}, nullptr);
        if (!comm) return;  // aborted before all had joined
        std::vector<bf16> data(300);
        for (;;) {
          for (bf16& x : data) x = to_bf16(1.0f);
          const bool ok = (*comm)->all_reduce(data.data(), 300).has_value();
          for (const bf16 x : data) ASSERT_EQ(to_float(x), ok ? static_cast<float>(world) : 1.0f);
          if (!ok) return;
          ++done[r];
          rounds.fetch_add(1);
        }
      });
    }
    threads.clear();
    for (const int count : done) EXPECT_EQ(count, done[0]);
  }
}

TEST(SharedMemory, RefusesWorldsAndRanksOutOfRange) {
  EXPECT_EQ(make_shared_memory({.world = 0}).error().kind, ErrorKind::Invalid);
  EXPECT_EQ(make_shared_memory({.world = 65}).error().kind, ErrorKind::Invalid);
  auto group = make_group({.world = 1});
  EXPECT_EQ(group->join(RankId{1}, nullptr).error().kind, ErrorKind::Invalid);
  EXPECT_EQ(group->join(RankId{-1}, nullptr).error().kind, ErrorKind::Invalid);
  EXPECT_TRUE(group->join(RankId{0}, nullptr).has_value());
  EXPECT_EQ(group->join(RankId{0}, nullptr).error().kind, ErrorKind::Duplicate);
}

TEST(WorldOfOne, LeavesTheDataAloneAndCountsTheCalls) {
  auto group = make_world_of_one();
  auto comm = group->join(RankId{0}, nullptr);
  ASSERT_TRUE(comm.has_value());
  bf16 x = to_bf16(3.0f);
  std::int32_t id = 7;
  EXPECT_TRUE((*comm)->all_reduce(&x, 1).has_value());
  EXPECT_TRUE((*comm)->broadcast(&id, 1).has_value());
  EXPECT_EQ(x, to_bf16(3.0f));
  EXPECT_EQ(id, 7);
  EXPECT_EQ((*comm)->sequence().number, 2u);
  group->abort({ErrorKind::Device, "gone"});
  EXPECT_EQ((*comm)->barrier().error().message, "gone");
}

}  // namespace
}  // namespace tandem::comm
