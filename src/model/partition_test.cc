#include "model/partition.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::model {
namespace {

Partition make(const Geometry& g, int rank, int world, LinearAttention mode) {
  auto partition = Partition::make(g, RankId{rank}, world, mode);
  EXPECT_TRUE(partition) << (partition ? "" : partition.error().message);
  return *partition;
}

// How often each row (or column) of a tensor is owned, over all ranks.
std::vector<int> owners(const TensorSpec& spec, const std::vector<Share>& shares, bool rows) {
  std::vector<int> count(static_cast<std::size_t>(rows ? spec.rows() : spec.cols()));
  for (const Share& share : shares) {
    const std::vector<Range> ranges = rows ? share.rows : std::vector<Range>{share.cols};
    for (const Range& range : ranges) {
      for (std::int64_t i = range.begin; i < range.begin + range.count; ++i) ++count.at(static_cast<std::size_t>(i));
    }
  }
  return count;
}

TEST(Partition, OneRankHasEveryTensorWhole) {
  for (const std::string_view size : kPublishedSizes) {
    const Geometry g = *published(size);
    for (const LinearAttention mode : {LinearAttention::Replicated, LinearAttention::Sharded}) {
      const Partition one = make(g, 0, 1, mode);
      for (const TensorSpec& spec : text_tensors(g)) {
        const Share share = one.share(spec);
        EXPECT_EQ(share.elements(), spec.elements()) << spec.name;
        EXPECT_EQ(share.cols, (Range{0, spec.cols()}));
        std::int64_t next = 0;  // in the file's own order
        for (const Range& range : share.rows) {
          EXPECT_EQ(range.begin, next);
          next += range.count;
        }
      }
    }
  }
}

TEST(Partition, EveryElementIsOwnedOnceOrByAllOrByTheRanksOfItsKvHead) {  // proves R7.6 for the shares
  for (const std::string_view size : kPublishedSizes) {
    const Geometry g = *published(size);
    for (const LinearAttention mode : {LinearAttention::Replicated, LinearAttention::Sharded}) {
      for (const int world : Partition::valid_degrees(g, mode)) {
        for (const TensorSpec& spec : text_tensors(g)) {
          if (spec.layer > 3) continue;  // layers repeat
          std::vector<Share> shares;
          for (int rank = 0; rank < world; ++rank) shares.push_back(make(g, rank, world, mode).share(spec));
          const bool by_rows = shares[0].cols.count == spec.cols();
          const auto count = owners(spec, shares, by_rows);
          const bool kv = spec.role == Role::Key || spec.role == Role::Value;
          const bool linear = group(spec.role) == WeightGroup::LinearAttention;
          const bool whole = shares[0].elements() == spec.elements();
          const int expected = whole ? world : kv ? std::max(1, world / g.kv_heads) : 1;
          EXPECT_TRUE(std::all_of(count.begin(), count.end(), [&](int n) { return n == expected; }))
              << size << " " << world << " " << spec.name;
          for (const Share& share : shares) EXPECT_EQ(share.elements(), shares[0].elements()) << spec.name;
          if (linear && mode == LinearAttention::Replicated) {
            EXPECT_TRUE(whole) << spec.name;
          }
        }
      }
    }
  }
}

TEST(Partition, TheFourBOnTwoRanksIsCutAsTheSpecificationSays) {  // spec 4, R7.1 to R7.3
  const Geometry g = *published("4B");
  for (std::int64_t r = 0; r < 2; ++r) {
    const Partition p = make(g, static_cast<int>(r), 2, LinearAttention::Sharded);
    const auto rows = [&](Role role, int layer) { return p.share(tensor_spec(g, role, layer)).rows; };
    const auto cols = [&](Role role, int layer) { return p.share(tensor_spec(g, role, layer)).cols; };
    EXPECT_EQ(rows(Role::Query, 3), (std::vector<Range>{{4096 * r, 4096}}));
    EXPECT_EQ(rows(Role::Key, 3), (std::vector<Range>{{512 * r, 512}}));
    EXPECT_EQ(rows(Role::Value, 3), (std::vector<Range>{{512 * r, 512}}));
    EXPECT_EQ(cols(Role::AttentionOut, 3), (Range{2048 * r, 2048}));
    EXPECT_EQ(rows(Role::InQkv, 0), (std::vector<Range>{{1024 * r, 1024}, {2048 + 1024 * r, 1024}, {4096 + 2048 * r, 2048}}));
    EXPECT_EQ(rows(Role::Conv, 0), rows(Role::InQkv, 0));
    EXPECT_EQ(rows(Role::InZ, 0), (std::vector<Range>{{2048 * r, 2048}}));
    for (const Role role : {Role::InB, Role::InA, Role::ALog, Role::DtBias}) {
      EXPECT_EQ(rows(role, 0), (std::vector<Range>{{16 * r, 16}}));
    }
    EXPECT_EQ(cols(Role::DeltaOut, 0), (Range{2048 * r, 2048}));
    EXPECT_EQ(rows(Role::Gate, 0), (std::vector<Range>{{4608 * r, 4608}}));
    EXPECT_EQ(cols(Role::Down, 0), (Range{4608 * r, 4608}));
    EXPECT_EQ(p.delta().key_heads, 8);
    EXPECT_EQ(p.delta().value_heads, 16);
    EXPECT_EQ(p.delta().channels(), 4096);
    EXPECT_EQ(p.query_heads(), 8);
    EXPECT_EQ(p.kv_heads(), 2);
  }
}

// B024: a tensor that a rank keeps whole by accident is named. Only the gated norm's vector, which all heads
// share, belongs to every rank.
TEST(Partition, ShardedLinearAttentionLeavesNothingWholeButItsNorm) {
  for (const std::string_view size : kPublishedSizes) {
    const Geometry g = *published(size);
    for (const int world : Partition::valid_degrees(g, LinearAttention::Sharded)) {
      int cut = 0;
      for (const TensorSpec& spec : text_tensors(g)) {
        if (spec.layer != 0 || group(spec.role) != WeightGroup::LinearAttention) continue;
        const bool shared = spec.role == Role::GatedNorm;
        cut += shared ? 0 : 1;
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(
              make(g, rank, world, LinearAttention::Sharded).share(spec).elements() * (shared ? 1 : world),
              spec.elements())
              << size << " " << spec.name << " rank " << rank << " of " << world;
        }
      }
      EXPECT_EQ(cut, 8);  // in_proj_qkv, z, b, a; conv1d, A_log, dt_bias; out_proj
    }
  }
}

TEST(Partition, QueryHeadsStandWithTheKvHeadTheyRead) {
  for (const std::string_view size : kPublishedSizes) {
    const Geometry g = *published(size);
    for (const int world : Partition::valid_degrees(g, LinearAttention::Sharded)) {
      for (int rank = 0; rank < world; ++rank) {
        const Partition p = make(g, rank, world, LinearAttention::Sharded);
        const std::int64_t first_query = p.share(tensor_spec(g, Role::Query, 3)).rows[0].begin / 512;
        const std::int64_t first_kv = p.share(tensor_spec(g, Role::Key, 3)).rows[0].begin / 256;
        for (int local = 0; local < p.query_heads(); ++local) {
          const std::int64_t global_kv = (first_query + local) / (g.query_heads / g.kv_heads);
          EXPECT_EQ(global_kv, first_kv + local / (p.query_heads() / p.kv_heads())) << size << " " << world;
        }
      }
    }
  }
}

TEST(Partition, DegreesAreThoseOfTheSpecification) {  // spec 4
  const auto degrees = [](std::string_view size, LinearAttention mode) { return Partition::valid_degrees(*published(size), mode); };
  for (const LinearAttention mode : {LinearAttention::Replicated, LinearAttention::Sharded}) {
    EXPECT_EQ(degrees("0.8B", mode), (std::vector<int>{1, 2, 4, 8}));
    EXPECT_EQ(degrees("2B", mode), (std::vector<int>{1, 2, 4, 8}));
    EXPECT_EQ(degrees("4B", mode), (std::vector<int>{1, 2, 4, 8, 16}));
    EXPECT_EQ(degrees("9B", mode), (std::vector<int>{1, 2, 4, 8, 16}));
    EXPECT_EQ(degrees("27B", mode), (std::vector<int>{1, 2, 4, 8}));
  }
}

TEST(Partition, ARefusalNamesFieldValueAndTheDegreesThatWork) {  // proves R6.2
  const Geometry g = *published("4B");
  EXPECT_EQ(Partition::make(g, RankId{0}, 3, LinearAttention::Sharded).error().message,
            "[tp] num_attention_heads = 16 does not divide over 3 ranks; this model runs on 1, 2, 4, 8 or 16");
  Geometry odd = g;
  odd.key_heads = 6;
  odd.value_heads = 12;
  EXPECT_EQ(Partition::make(odd, RankId{0}, 4, LinearAttention::Sharded).error().message,
            "[tp] linear_num_key_heads = 6 does not divide over 4 ranks; this model runs on 1 or 2");
  EXPECT_TRUE(Partition::make(odd, RankId{0}, 4, LinearAttention::Replicated));
  odd = g;
  odd.intermediate = 9224;
  EXPECT_NE(Partition::make(odd, RankId{0}, 16, LinearAttention::Replicated).error().message.find("intermediate_size = 9224"), std::string::npos);
  odd = g;
  odd.kv_heads = 3;
  odd.query_heads = 12;
  EXPECT_NE(Partition::make(odd, RankId{0}, 4, LinearAttention::Replicated).error().message.find("num_key_value_heads = 3"), std::string::npos);
  for (const int world : {0, -1, 17}) EXPECT_FALSE(Partition::make(g, RankId{0}, world, LinearAttention::Replicated));
  EXPECT_FALSE(Partition::make(g, RankId{2}, 2, LinearAttention::Replicated));
}

}  // namespace
}  // namespace tandem::model
