#include "memory/pools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "memory/planner.h"
#include "ops/reference/backend.h"

namespace tandem::memory {
namespace {

model::Geometry geometry() {
  model::Geometry g = *model::published("0.8B");
  g.layers = model::layer_pattern(8, 4);
  return g;
}

struct Made {
  std::unique_ptr<ops::Backend> backend = ops::make_reference_backend();
  model::Partition partition = *model::Partition::make(geometry(), RankId{0}, 2, model::LinearAttention::Sharded);
  Pools pools = *Pools::make(*backend, geometry(), partition, 3, 2);
};

TEST(Pools, ViewsOfAllLayersCoverAPageAndASlotOnceAndNothingElse) {
  Made made;
  const model::PoolViews views = made.pools.views();
  ASSERT_EQ(views.kv.size(), 2u);
  ASSERT_EQ(views.state.size(), 6u);
  for (const int page : {0, 2, 3}) {  // 3 is the scratch page
    std::set<const std::byte*> starts;
    for (const ops::KvPages& kv : views.kv) {
      const bf16* k = kv.base + page * kv.page_stride;
      starts.insert(reinterpret_cast<const std::byte*>(k));
      starts.insert(reinterpret_cast<const std::byte*>(k + kv.v_offset));
    }
    const std::int64_t half = std::int64_t{made.partition.kv_heads()} * 64 * 256 * 2;
    ASSERT_EQ(starts.size(), 4u);
    const std::byte* expected = made.pools.page(PageId{page});
    for (const std::byte* start : starts) {
      EXPECT_EQ(start, expected);
      expected += half;
    }
    EXPECT_EQ(expected, made.pools.page(PageId{page}) + made.pools.page_bytes());
  }
  for (const int slot : {0, 1, 2}) {  // 2 is the trash slot
    const std::byte* expected = made.pools.slot(SlotId{slot});
    for (const ops::DeltaState& state : views.state) {
      EXPECT_EQ(reinterpret_cast<const std::byte*>(state.state + slot * state.state_stride), expected);
      expected += std::int64_t{made.partition.delta().value_heads} * 128 * 128 * 4;
    }
    for (const ops::DeltaState& state : views.state) {
      EXPECT_EQ(reinterpret_cast<const std::byte*>(state.conv + slot * state.conv_stride), expected);
      expected += std::int64_t{made.partition.delta().channels()} * 3 * 2;
    }
    EXPECT_EQ(expected, made.pools.slot(SlotId{slot}) + made.pools.slot_bytes());
  }
}

TEST(Pools, WhatIsAllocatedIsWhatThePlanSays) {
  Made made;
  PlanRequest request{.geometry = geometry(), .world = 2, .linear_attention = model::LinearAttention::Sharded};
  request.limits = {.max_tokens = 64, .max_rows = 4, .max_context = 64, .max_logit_rows = 4, .slots = 2};
  const RankPlan plan = plan_capacity(request)->ranks[0];
  std::int64_t pages = 0, slots = 0;
  for (const ops::Allocation& entry : made.backend->allocations()) {
    if (entry.use == ops::MemoryUse::KvPages) pages += static_cast<std::int64_t>(entry.bytes);
    if (entry.use == ops::MemoryUse::StateSlots) slots += static_cast<std::int64_t>(entry.bytes);
  }
  EXPECT_EQ(pages, 4 * plan.page_bytes);
  EXPECT_EQ(slots, plan.slots * plan.slot_bytes);
}

TEST(Pools, AFreedSlotAndPageBecomeNaNAndAScrubbedOneZeroAndNeighboursStay) {  // proves R4.5's debug mode
  Made made;
  const model::PoolViews views = made.pools.views();
  ASSERT_TRUE(made.pools.fill_with_nan(SlotId{1}));
  ASSERT_TRUE(made.pools.fill_with_nan(PageId{1}));
  const auto all_bytes = [](const std::byte* begin, std::int64_t count, std::byte value) {
    return std::all_of(begin, begin + count, [&](std::byte b) { return b == value; });
  };
  EXPECT_TRUE(std::isnan(views.state[3].state[views.state[3].state_stride]));
  EXPECT_TRUE(std::isnan(to_float(views.state[3].conv[views.state[3].conv_stride])));
  EXPECT_TRUE(std::isnan(to_float(views.kv[1].base[views.kv[1].page_stride + views.kv[1].v_offset])));
  for (const int other : {0, 2}) {
    EXPECT_TRUE(all_bytes(made.pools.slot(SlotId{other}), made.pools.slot_bytes(), std::byte{0}));
    EXPECT_TRUE(all_bytes(made.pools.page(PageId{other}), made.pools.page_bytes(), std::byte{0}));
  }
  ASSERT_TRUE(made.pools.scrub(SlotId{1}));
  ASSERT_TRUE(made.pools.scrub(PageId{1}));
  EXPECT_TRUE(all_bytes(made.pools.slot(SlotId{1}), made.pools.slot_bytes(), std::byte{0}));
  EXPECT_TRUE(all_bytes(made.pools.page(PageId{1}), made.pools.page_bytes(), std::byte{0}));
}

}  // namespace
}  // namespace tandem::memory
