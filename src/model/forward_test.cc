#include "model/forward.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "comm/shared_memory.h"
#include "model/testing.h"

namespace tandem::model {
namespace {

using testing::expect_same;
using testing::Fabricated;
using testing::random_ids;
using testing::small_geometry;
using testing::TestRank;
using testing::TestRow;
using Choices = std::vector<ops::TokenChoice>;

const std::vector<int> kPages{3, 0, 5, 7};

Choices part(const Choices& all, std::size_t begin, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

TEST(Forward, ChunkedEqualsWholeBitForBit) {
  const Fabricated model(small_geometry());
  const auto ids = random_ids(1, 200, model.checkpoint->geometry().vocab);
  TestRank rank(*model.checkpoint);
  const Choices whole = rank.run_chunks(ids, {200}, 0, kPages);
  const auto state = rank.state_bytes(0);
  for (const std::vector<int>& ends : std::vector<std::vector<int>>{{64, 128, 192, 200}, {128, 200}, {64, 200}, {192, 200}}) {
    expect_same(rank.run_chunks(ids, ends, 1, {9, 10, 11, 12}), whole, "chunks");
    EXPECT_EQ(rank.state_bytes(1), state);
  }
  // The reference's chunks may end anywhere.
  expect_same(rank.run_chunks(ids, {1, 2, 5, 63, 64, 66, 130, 199, 200}, 2, {13, 14, 15, 16}), whole, "odd chunks");
}

TEST(Forward, DecodeRowsContinueAPromptAsItsOwnTokensWould) {
  const Fabricated model(small_geometry());
  const auto ids = random_ids(2, 90, model.checkpoint->geometry().vocab);
  TestRank rank(*model.checkpoint);
  const Choices whole = rank.run_chunks(ids, {90}, 0, kPages);
  Choices stepwise = rank.run_chunks({ids.begin(), ids.begin() + 60}, {60}, 1, {9, 10});
  for (int i = 60; i < 90; ++i) {
    const Choices one = rank.run({{.slot = 1, .base_pos = i, .ids = {ids[static_cast<std::size_t>(i)]}, .pages = {9, 10}, .decode = true}});
    stepwise.insert(stepwise.end(), one.begin(), one.end());
  }
  expect_same(stepwise, whole, "decode");
}

TEST(Forward, ARowInAMixedStepEqualsTheRowAlone) {  // proves R4.7: neither order nor neighbours matter
  const Fabricated model(small_geometry());
  const int vocab = model.checkpoint->geometry().vocab;
  const auto a = random_ids(3, 70, vocab), b = random_ids(4, 131, vocab), c = random_ids(5, 9, vocab);
  TestRank alone(*model.checkpoint);
  const Choices whole_a = alone.run_chunks(a, {70}, 0, {0, 1});
  const Choices whole_b = alone.run_chunks(b, {131}, 1, {2, 3, 4});
  const Choices whole_c = alone.run_chunks(c, {9}, 2, {5});

  TestRank mixed(*model.checkpoint);
  mixed.poison_pools();
  const auto piece = [](const std::vector<TokenId>& ids, int begin, int end) {
    return std::vector<TokenId>(ids.begin() + begin, ids.begin() + end);
  };
  const Choices first = mixed.run({{.slot = 3, .base_pos = 0, .ids = piece(a, 0, 68), .pages = {20, 7}, .fresh = true},
                                   {.slot = 0, .base_pos = 0, .ids = piece(c, 0, 7), .pages = {11}, .fresh = true}});
  expect_same(part(first, 0, 68), part(whole_a, 0, 68), "a");
  expect_same(part(first, 68, 7), part(whole_c, 0, 7), "c");
  // Two decode rows, a padding row on the trash slot, and a long prompt's first chunk.
  const Choices second = mixed.run({{.slot = 0, .base_pos = 7, .ids = piece(c, 7, 8), .pages = {11}, .decode = true},
                                    {.slot = 3, .base_pos = 68, .ids = piece(a, 68, 69), .pages = {20, 7}, .decode = true},
                                    {.slot = TestRank::kSlots, .base_pos = 0, .ids = {0}, .pages = {TestRank::kPages}, .decode = true},
                                    {.slot = 1, .base_pos = 0, .ids = piece(b, 0, 64), .pages = {2, 9, 1}, .fresh = true}});
  expect_same(part(second, 0, 1), part(whole_c, 7, 1), "c");
  expect_same(part(second, 1, 1), part(whole_a, 68, 1), "a");
  expect_same(part(second, 3, 64), part(whole_b, 0, 64), "b");
  // The other order of the decode rows.
  const Choices third = mixed.run({{.slot = 3, .base_pos = 69, .ids = piece(a, 69, 70), .pages = {20, 7}, .decode = true},
                                   {.slot = 0, .base_pos = 8, .ids = piece(c, 8, 9), .pages = {11}, .decode = true},
                                   {.slot = 1, .base_pos = 64, .ids = piece(b, 64, 131), .pages = {2, 9, 1}}});
  expect_same(part(third, 0, 1), part(whole_a, 69, 1), "a");
  expect_same(part(third, 1, 1), part(whole_c, 8, 1), "c");
  expect_same(part(third, 2, 67), part(whole_b, 64, 67), "b");
}

TEST(Forward, AReusedSlotShowsNothingOfItsEarlierRequest) {  // proves R4.5
  const Fabricated model(small_geometry());
  const auto first = random_ids(6, 150, model.checkpoint->geometry().vocab);
  const auto second = random_ids(7, 77, model.checkpoint->geometry().vocab);
  TestRank fresh(*model.checkpoint);
  const Choices expected = fresh.run_chunks(second, {64, 77}, 0, {0, 1});

  TestRank used(*model.checkpoint);
  (void)used.run_chunks(first, {150}, 0, {0, 1, 2});
  expect_same(used.run_chunks(second, {64, 77}, 0, {0, 1}), expected, "reused");
  used.poison_pools();
  expect_same(used.run_chunks(second, {64, 77}, 0, {1, 0}), expected, "filled with NaN");
}

TEST(Forward, LogitRowsBeyondTheBufferAreDoneInGroups) {
  const Fabricated model(small_geometry(false));  // 48 rows of logits; 200 are asked for
  const auto ids = random_ids(8, 200, model.checkpoint->geometry().vocab);
  TestRank rank(*model.checkpoint);
  const Choices whole = rank.run_chunks(ids, {200}, 0, kPages);
  ASSERT_EQ(whole.size(), 200u);
  expect_same(rank.run_chunks(ids, {40, 64, 104, 128, 168, 200}, 1, {9, 10, 11, 12}), whole, "groups");
}

TEST(Forward, ResidualHashesAreOnePerLayerAndRepeat) {  // proves R7.7's debug mode
  const Fabricated model(small_geometry());
  const auto ids = random_ids(9, 30, model.checkpoint->geometry().vocab);
  TestRank rank(*model.checkpoint);
  (void)rank.run_chunks(ids, {30}, 0, {0});
  const std::vector<std::uint64_t> first(rank.forward().residual_hashes().begin(), rank.forward().residual_hashes().end());
  EXPECT_EQ(first.size(), 5u);
  (void)rank.run_chunks(ids, {30}, 1, {1});
  EXPECT_TRUE(std::equal(first.begin(), first.end(), rank.forward().residual_hashes().begin()));
}

struct WorldRun {
  std::vector<Choices> choices;                     // per rank
  std::vector<std::vector<std::uint64_t>> hashes;   // of the last step, per rank
  std::vector<std::uint64_t> collectives, sequence;
};

WorldRun run_world(const Checkpoint& checkpoint, int world, LinearAttention mode, const std::vector<TokenId>& ids) {
  const auto group = *comm::make_shared_memory({.world = world});
  WorldRun result;
  result.choices.resize(static_cast<std::size_t>(world));
  result.hashes.resize(static_cast<std::size_t>(world));
  result.collectives.resize(static_cast<std::size_t>(world));
  result.sequence.resize(static_cast<std::size_t>(world));
  std::vector<std::thread> ranks;
  for (int r = 0; r < world; ++r) {
    ranks.emplace_back([&, r] {
      auto comm = group->join(RankId{r}, nullptr);
      if (!comm) {
        ADD_FAILURE() << comm.error().message;
        return;
      }
      TestRank rank(checkpoint, RankId{r}, world, mode, std::move(*comm));
      const auto i = static_cast<std::size_t>(r);
      const auto before = rank.communicator().sequence().number;
      result.choices[i] = rank.run_chunks(ids, {static_cast<int>(ids.size())}, 0, kPages);
      result.collectives[i] = rank.communicator().sequence().number - before;
      result.sequence[i] = rank.communicator().sequence().hash;
      result.hashes[i].assign(rank.forward().residual_hashes().begin(), rank.forward().residual_hashes().end());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return result;
}

TEST(Forward, RanksAgreeAndEqualOneRankWithinRounding) {  // proves R1.3, R7.1 to R7.3, R7.7
  Geometry geometry = small_geometry();
  geometry.query_heads = 4;
  geometry.kv_heads = 2;  // replicated on four ranks
  geometry.key_heads = 4;
  geometry.value_heads = 8;
  const Fabricated model(geometry);
  const auto ids = random_ids(10, 100, geometry.vocab);
  TestRank one(*model.checkpoint);
  const Choices expected = one.run_chunks(ids, {100}, 0, kPages);
  for (const int world : {2, 4}) {
    for (const LinearAttention mode : {LinearAttention::Replicated, LinearAttention::Sharded}) {
      const WorldRun run = run_world(*model.checkpoint, world, mode, ids);
      // One all-reduce per full mixer and MLP, per linear mixer when it is sharded, and the ids.
      const std::uint64_t linear = mode == LinearAttention::Sharded ? 3 : 0;
      double sum = 0;
      for (int r = 0; r < world; ++r) {
        const auto i = static_cast<std::size_t>(r);
        EXPECT_EQ(run.collectives[i], 1 + 4 + linear + 1) << world;
        EXPECT_EQ(run.sequence[i], run.sequence[0]);
        EXPECT_EQ(run.hashes[i], run.hashes[0]) << "rank " << r;
        EXPECT_EQ(run.choices[i].size(), r == 0 ? 100u : 0u);
      }
      ASSERT_EQ(run.choices[0].size(), expected.size());
      for (std::size_t t = 0; t < expected.size(); ++t) sum += std::abs(run.choices[0][t].logprob - expected[t].logprob);
      // bf16 partial sums differ from whole ones by an ulp or so; a wrong shard is off by whole logits.
      EXPECT_LT(sum / static_cast<double>(expected.size()), 0.08) << world << " " << name(mode);
    }
  }
}

}  // namespace
}  // namespace tandem::model
