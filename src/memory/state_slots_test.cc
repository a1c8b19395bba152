#include "memory/state_slots.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>

namespace tandem::memory {
namespace {

TEST(StateSlots, TheLowestFreeSlotIsTaken) {
  StateSlots slots(3);
  EXPECT_EQ(*slots.acquire(RequestId{10}), SlotId{0});
  EXPECT_EQ(*slots.acquire(RequestId{11}), SlotId{1});
  EXPECT_EQ(*slots.acquire(RequestId{12}), SlotId{2});
  ASSERT_TRUE(slots.release(RequestId{11}));
  ASSERT_TRUE(slots.release(RequestId{10}));
  EXPECT_EQ(*slots.acquire(RequestId{13}), SlotId{0});
}

TEST(StateSlots, AFullPoolLetsTheRequestWait) {
  StateSlots slots(1);
  ASSERT_TRUE(slots.acquire(RequestId{1}));
  EXPECT_EQ(slots.acquire(RequestId{2}).error().kind, ErrorKind::Capacity);
  EXPECT_EQ(slots.acquire(RequestId{1}).error().kind, ErrorKind::Duplicate);
}

// B004: the slot of padding rows, numbered as the capacity, is no request's, and there is no other number
// that means none.
TEST(StateSlots, EveryRequestsSlotLiesBelowTheSlotForPadding) {
  for (const int capacity : {1, 2, 3, 4, 8, 64}) {
    StateSlots slots(capacity);
    const SlotId padding{slots.capacity()};
    for (int i = 0; i < capacity; ++i) {
      const auto slot = slots.acquire(RequestId{static_cast<std::uint64_t>(i) + 1});
      ASSERT_TRUE(slot);
      EXPECT_EQ(*slot, SlotId{i});  // number zero is one of them
      EXPECT_LT(*slot, padding);
    }
    EXPECT_EQ(slots.acquire(RequestId{1000}).error().kind, ErrorKind::Capacity);  // an error, not a number
  }
}

TEST(StateSlots, ASlotNeverMovesWhileItIsHeld) {  // proves R4.7
  StateSlots slots(3);
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(slots.acquire(RequestId{id}));
  ASSERT_TRUE(slots.release(RequestId{1}));
  const std::array rows{RequestId{3}, RequestId{2}};
  std::array<SlotId, 2> found;
  ASSERT_TRUE(slots.find(rows, found));
  EXPECT_EQ(found[0], SlotId{2});
  EXPECT_EQ(found[1], SlotId{1});
}

TEST(StateSlots, AnUnknownRequestIsNamed) {
  StateSlots slots(1);
  EXPECT_EQ(slots.release(RequestId{7}).error().kind, ErrorKind::NotHeld);
  const std::array rows{RequestId{7}};
  std::array<SlotId, 1> found;
  EXPECT_EQ(slots.find(rows, found).error().message, "[state_slots] request 7 holds no slot");
}

RC_GTEST_PROP(StateSlots, HeldAndFreeAddUpToTheCapacity, ()) {
  const int capacity = *rc::gen::inRange(1, 12);
  StateSlots slots(capacity);
  std::map<std::uint64_t, SlotId> held;
  for (int i = *rc::gen::inRange(1, 100); i-- > 0;) {
    const auto id = *rc::gen::inRange<std::uint64_t>(1, 20);
    if (*rc::gen::arbitrary<bool>()) {
      const auto slot = slots.acquire(RequestId{id});
      RC_ASSERT(slot.has_value() == (!held.contains(id) && static_cast<int>(held.size()) < capacity));
      if (slot) {
        for (const auto& [other, taken] : held) RC_ASSERT(taken != *slot);
        RC_ASSERT(slot->value >= 0 && slot->value < capacity);
        held.emplace(id, *slot);
      }
    } else {
      RC_ASSERT(slots.release(RequestId{id}).has_value() == (held.erase(id) == 1));
    }
    RC_ASSERT(slots.check().has_value());
    RC_ASSERT(slots.held() == static_cast<int>(held.size()));
    RC_ASSERT(slots.held() + slots.free() == capacity);
  }
}

}  // namespace
}  // namespace tandem::memory
