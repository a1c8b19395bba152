#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

TEST(ThreadTeam, DoesEveryItemExactlyOnceAndSeesTheLastLoopsWrites) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    ASSERT_EQ(team.size(), threads);
    std::vector<std::int64_t> done(1000, 0);
    for (std::int64_t loop = 0; loop < 200; ++loop) {
      const std::int64_t items = (loop * 37) % 1000;
      team.run(items, [&](std::int64_t i, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++done[static_cast<std::size_t>(i)];
      });
    }
    for (std::int64_t i = 0; i < 1000; ++i) {
      std::int64_t want = 0;
      for (std::int64_t loop = 0; loop < 200; ++loop) want += i < (loop * 37) % 1000;
      EXPECT_EQ(done[static_cast<std::size_t>(i)], want) << "item " << i << " of " << threads << " threads";
    }
  }
}

TEST(ThreadTeam, EndsWhileItsThreadsSleep) {
  for (int i = 0; i < 50; ++i) ThreadTeam team(4);
}

}  // namespace
}  // namespace tandem
