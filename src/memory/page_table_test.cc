#include "memory/page_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "ops/step_view.h"

namespace tandem::memory {
namespace {

struct Life {
  int prompt, max_tokens, pages;
};

TEST(PageTable, ALifeIsThePromptAndAllTokensButTheLast) {  // B039. proves R5.2
  // With 64-token pages; the first rows are one page multiple and its neighbours.
  const Life lives[] = {{64, 1, 1}, {64, 64, 2}, {64, 65, 2}, {64, 66, 3}, {1, 16, 1},   {17, 16, 1},
                        {33, 100, 3}, {16, 1, 1}, {16, 17, 1}, {65, 1, 2}, {128, 1, 2}, {1, 64, 1}, {1, 65, 2}};
  for (const Life& life : lives) {
    EXPECT_EQ(pages_for(lifetime_tokens(life.prompt, life.max_tokens)), life.pages)
        << life.prompt << " + " << life.max_tokens;
  }
}

TEST(PageTable, WhatWasSetAsideIsEnoughForEveryTokenThatIsFed) {  // B039. proves R5.2
  for (const int prompt : {1, 16, 17, 33, 63, 64, 65, 128}) {
    for (const int max_tokens : {1, 2, 16, 17, 63, 64, 65, 66, 100, 129}) {
      const std::int64_t life = lifetime_tokens(prompt, max_tokens);
      PageTable table(static_cast<int>(pages_for(life)));
      ASSERT_TRUE(table.reserve(RequestId{1}, life));
      ASSERT_TRUE(table.extend(RequestId{1}, prompt));
      for (int generated = 1; generated < max_tokens; ++generated) {  // token g is fed at position prompt + g - 1
        ASSERT_TRUE(table.extend(RequestId{1}, prompt + generated)) << prompt << " " << max_tokens << " " << generated;
      }
      EXPECT_EQ(table.held(), table.capacity()) << prompt << " " << max_tokens;  // and not a page more
    }
  }
}

TEST(PageTable, ARequestWaitsUntilItsWholeLifeFits) {
  PageTable table(4);
  ASSERT_TRUE(table.reserve(RequestId{1}, 3 * 64));
  const auto refused = table.reserve(RequestId{2}, 2 * 64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
  EXPECT_EQ(refused.error().message, "[page_table] 128 tokens need 2 pages of 64 tokens; 1 of 4 are not set aside");
  ASSERT_TRUE(table.release(RequestId{1}));
  EXPECT_TRUE(table.reserve(RequestId{2}, 2 * 64));
  EXPECT_TRUE(table.could_ever_fit(4 * 64));
  EXPECT_FALSE(table.could_ever_fit(4 * 64 + 1));
}

TEST(PageTable, PagesAreTakenLowestFirstAndOnlyAsTheyAreNeeded) {
  PageTable table(5);
  ASSERT_TRUE(table.reserve(RequestId{1}, 200));
  ASSERT_TRUE(table.reserve(RequestId{2}, 64));
  const auto first = table.extend(RequestId{1}, 65);
  ASSERT_TRUE(first);
  ASSERT_EQ(first->size(), 2u);
  EXPECT_EQ((*first)[0], PageId{0});
  EXPECT_EQ((*first)[1], PageId{1});
  ASSERT_TRUE(table.extend(RequestId{2}, 1));
  EXPECT_EQ(table.pages(RequestId{2})[0], PageId{2});
  EXPECT_TRUE(table.extend(RequestId{1}, 128)->empty());
  ASSERT_TRUE(table.release(RequestId{1}));
  ASSERT_TRUE(table.reserve(RequestId{3}, 64));
  ASSERT_TRUE(table.extend(RequestId{3}, 64));
  EXPECT_EQ(table.pages(RequestId{3})[0], PageId{0});
}

TEST(PageTable, UnknownRequestsAndLivesBeyondTheReservationAreErrors) {
  PageTable table(4);
  EXPECT_EQ(table.release(RequestId{1}).error().kind, ErrorKind::NotHeld);
  EXPECT_EQ(table.extend(RequestId{1}, 1).error().kind, ErrorKind::NotHeld);
  ASSERT_TRUE(table.reserve(RequestId{1}, 64));
  EXPECT_EQ(table.reserve(RequestId{1}, 64).error().kind, ErrorKind::Duplicate);
  EXPECT_EQ(table.extend(RequestId{1}, 65).error().kind, ErrorKind::Capacity);
  EXPECT_TRUE(table.check());
}

RC_GTEST_PROP(PageTable, AnyListOfReservesExtendsAndReleasesKeepsTheBooks, ()) {
  const int capacity = *rc::gen::inRange(1, 40);
  PageTable table(capacity);
  std::map<std::uint64_t, std::int64_t> lives;
  std::map<std::int32_t, std::uint64_t> owner;
  const int actions = *rc::gen::inRange(1, 80);
  for (int i = 0; i < actions; ++i) {
    const auto id = *rc::gen::inRange<std::uint64_t>(1, 9);
    const RequestId request{id};
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        const auto tokens = *rc::gen::inRange<std::int64_t>(1, 64 * 12);
        const bool fits = !lives.contains(id) && pages_for(tokens) <= table.unreserved();
        RC_ASSERT(table.reserve(request, tokens).has_value() == fits);
        if (fits) lives[id] = tokens;
        break;
      }
      case 1: {
        const auto tokens = *rc::gen::inRange<std::int64_t>(0, 64 * 12);
        const auto added = table.extend(request, tokens);
        RC_ASSERT(added.has_value() == (lives.contains(id) && pages_for(tokens) <= pages_for(lives.at(id))));
        if (added) {
          for (const PageId page : *added) RC_ASSERT(owner.emplace(page.value, id).second);
          RC_ASSERT(static_cast<std::int64_t>(table.pages(request).size()) >= pages_for(tokens));
        }
        break;
      }
      default:
        RC_ASSERT(table.release(request).has_value() == lives.contains(id));
        lives.erase(id);
        std::erase_if(owner, [&](const auto& entry) { return entry.second == id; });
    }
    RC_ASSERT(table.check().has_value());
    RC_ASSERT(table.held() + table.free() == capacity);
    RC_ASSERT(table.held() == static_cast<int>(owner.size()));
  }
  for (const auto& [id, tokens] : lives) RC_ASSERT(table.release(RequestId{id}).has_value());
  RC_ASSERT(table.free() == capacity && table.reserved() == 0);
}

}  // namespace
}  // namespace tandem::memory
