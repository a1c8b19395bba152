#include "ops/cuda/block_split.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::ops::cuda {
namespace {

void check(const BlockSplit& split) {
  SCOPED_TRACE(::testing::Message() << split.tiles << " tiles, " << split.groups << " groups of " << split.chunks
                                    << " chunks, " << split.blocks << " blocks, whole " << split.whole);
  ASSERT_EQ(split.begin(0), 0);
  ASSERT_EQ(split.begin(split.blocks), split.units());
  ASSERT_EQ(split.begin(split.blocks + 5), split.units());
  const int most_chunks = split.most_chunks(), most_owners = split.most_owners();
  for (int b = 0; b < split.blocks; ++b) {
    const int begin = split.begin(b), end = split.begin(b + 1);
    ASSERT_LT(begin, end) << "block " << b << " has nothing to do";
    if (split.whole) ASSERT_EQ(begin % split.chunks, 0);
    if (!split.whole) ASSERT_LE(end - begin, split.units() / split.blocks + 1);
    for (int unit = begin; unit < end; ++unit) {
      if (!split.whole) ASSERT_EQ(split.owner(unit), b) << "unit " << unit;
      const int strip = unit / split.chunks, chunk = strip / split.tiles * split.chunks + unit % split.chunks;
      ASSERT_GE(chunk, split.first_chunk(b));
      ASSERT_LT(chunk, split.end_chunk(b));
      ASSERT_LE(split.end_chunk(b) - split.first_chunk(b), most_chunks);
    }
  }
  if (split.whole) return;
  for (int strip = 0; strip < split.strips(); ++strip) {
    // Owners of one strip are neighbours, so that owner - first owner numbers its pieces without gaps.
    for (int b = split.first_owner(strip); b <= split.last_owner(strip); ++b) {
      ASSERT_LT(split.begin(b), (strip + 1) * split.chunks);
      ASSERT_GT(split.begin(b + 1), strip * split.chunks);
    }
    ASSERT_LE(split.last_owner(strip) - split.first_owner(strip) + 1, most_owners);
  }
}

TEST(BlockSplit, DealsEveryUnitOnceAndFindsItsOwner) {
  for (const int grid : {1, 7, 114, 132})
    for (const int tiles : {1, 4, 20, 64, 160, 772})
      for (const int cols : {64, 1024, 2560, 3584, 9216}) {
        check(split_by_tiles(tiles, cols, grid));
        for (const int most_chunks : {1, 2, 5, 40}) check(split_by_units(tiles, cols, grid, most_chunks));
      }
}

TEST(BlockSplit, NeedsNoMoreInputsThanAskedForPublishedSizes) {
  for (const int cols : {2048, 3584, 4096, 6144, 9216, 12288, 17408})
    for (const int most_chunks : {2, 4, 5, 8, 10, 24}) {
      const BlockSplit split = split_by_units(160, cols, 132, most_chunks);
      EXPECT_LE(split.most_chunks(), most_chunks) << cols << " with " << most_chunks;
    }
}

}  // namespace
}  // namespace tandem::ops::cuda
