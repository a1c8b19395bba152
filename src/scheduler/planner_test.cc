#include "scheduler/planner.h"

#include <gtest/gtest.h>

namespace tandem::scheduler {
namespace {

// proves R5.2
TEST(Planner, WholeLifeCountsEveryTokenButTheLast) {
  EXPECT_EQ(pages_for_life(64, 1), 1);
  EXPECT_EQ(pages_for_life(64, 2), 2);
  EXPECT_EQ(pages_for_life(1, 64), 1);
  EXPECT_EQ(pages_for_life(1, 65), 2);
  EXPECT_EQ(pages_for_life(64, 65), 2);
  EXPECT_EQ(pages_for_life(64, 66), 3);
}

}  // namespace
}  // namespace tandem::scheduler
