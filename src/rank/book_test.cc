#include "rank/book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

namespace tandem::rank {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Row chunk(std::uint64_t request, int slot, int base_pos, int tokens, bool last,
          std::vector<PageId> pages = {}) {
  return {.request = RequestId{request},
          .slot = SlotId{slot},
          .kind = ops::RowKind::Prefill,
          .base_pos = base_pos,
          .tokens = tokens,
          .new_pages = std::move(pages),
          .samples = last};
}

Row decode(std::uint64_t request, int slot, int base_pos, std::vector<PageId> pages = {}) {
  return {.request = RequestId{request},
          .slot = SlotId{slot},
          .base_pos = base_pos,
          .new_pages = std::move(pages)};
}

Result<void> apply(Book& book, std::vector<Row> rows) { return book.apply(Step{.rows = std::move(rows)}); }

TEST(Book, BindsOnTheFirstRowAndKeepsThePagesUntilTheDrop) {
  Book book(2, 8);
  ASSERT_TRUE(apply(book, {chunk(7, 1, 0, 64, false, {PageId{5}})}).has_value());
  EXPECT_EQ(book.table(RequestId{7}).known, 0);
  ASSERT_TRUE(apply(book, {chunk(7, 1, 64, 10, true, {PageId{2}})}).has_value());
  EXPECT_EQ(book.table(RequestId{7}).known, 1);
  ASSERT_TRUE(apply(book, {decode(7, 1, 74), chunk(8, 0, 0, 3, true, {PageId{0}})}).has_value());
  EXPECT_EQ(book.table(RequestId{7}).known, 2);
  EXPECT_THAT(book.table(RequestId{7}).pages, ElementsAre(PageId{5}, PageId{2}));
  EXPECT_EQ(book.slot(RequestId{7}), SlotId{1});
  const auto held = book.drop(RequestId{7});
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->slot, SlotId{1});
  EXPECT_THAT(held->pages, ElementsAre(PageId{5}, PageId{2}));
  EXPECT_FALSE(book.drop(RequestId{7}).has_value());
  EXPECT_EQ(book.held(), 1);
  ASSERT_TRUE(apply(book, {chunk(9, 1, 0, 64, false, {PageId{5}})}).has_value());
}

// proves R1.4
TEST(Book, AnyDisagreementIsDivergence) {
  struct Case {
    const char* message;
    Row row;
  };
  const Case cases[] = {
      {"request 7 names slot 0 but is bound to slot 1", decode(7, 0, 70)},
      {"request 7 goes on at position 71 instead of 70", decode(7, 1, 71)},
      {"request 7 goes on at position 0 instead of 70", chunk(7, 1, 0, 64, true)},
      {"brings a prompt chunk after its prompt has ended", chunk(7, 1, 70, 64, true)},
      {"request 9 names slot 1, which request 7 holds", chunk(9, 1, 0, 64, true, {PageId{7}})},
      {"request 9 comes in at position 70, not 0", decode(9, 0, 70)},
      {"request 9 decodes before its prompt has ended", decode(9, 0, 0, {PageId{7}})},
      {"request 9 adds page 5, which request 7 holds", chunk(9, 0, 0, 64, true, {PageId{5}})},
      {"request 9 has 1 pages for 65 tokens", chunk(9, 0, 0, 65, true, {PageId{7}})},
      {"request 9 adds page 8 of 8", chunk(9, 0, 0, 1, true, {PageId{8}})},
      {"request 9 names slot 2 of 2", chunk(9, 2, 0, 1, true, {PageId{7}})},
  };
  for (const Case& c : cases) {
    Book book(2, 8);
    ASSERT_TRUE(apply(book, {chunk(7, 1, 0, 70, true, {PageId{5}, PageId{2}})}).has_value());
    const auto result = apply(book, {c.row});
    ASSERT_FALSE(result.has_value()) << c.message;
    EXPECT_EQ(result.error().kind, ErrorKind::Protocol);
    EXPECT_THAT(result.error().message, HasSubstr(c.message));
  }
}

// Any life of requests keeps the book equal to a plain model of it.
TEST(Book, RandomLivesKeepItEqualToAPlainModel) {
  constexpr int kSlots = 5, kPages = 40;
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Book book(kSlots, kPages);
    struct Model {
      int slot, pos, prompt;
      std::vector<PageId> pages;
    };
    std::map<std::uint64_t, Model> live;
    std::set<int> slots, pages;
    for (int s = 0; s < kSlots; ++s) slots.insert(s);
    for (int p = 0; p < kPages; ++p) pages.insert(p);
    std::uint64_t next = 1;
    for (int round = 0; round < 200; ++round) {
      if (!slots.empty() && random() % 3 == 0) {
        const int slot = *std::next(slots.begin(), static_cast<long>(random() % slots.size()));
        slots.erase(slot);
        live[next++] = {slot, 0, static_cast<int>(1 + random() % 200), {}};
      }
      std::vector<Row> rows;
      for (auto& [id, model] : live) {
        if (random() % 4 == 0) continue;
        const bool decodes = model.pos >= model.prompt;
        const int tokens = decodes ? 1 : std::min<int>(model.prompt - model.pos, 64 * (1 + random() % 2));
        const std::size_t need =
            static_cast<std::size_t>((model.pos + tokens + 63) / 64) - model.pages.size();
        if (need > pages.size()) continue;
        std::vector<PageId> added;
        for (std::size_t i = 0; i < need; ++i) {
          const int page = *std::next(pages.begin(), static_cast<long>(random() % pages.size()));
          pages.erase(page);
          added.push_back(PageId{page});
          model.pages.push_back(PageId{page});
        }
        rows.push_back(
            decodes ? decode(id, model.slot, model.pos, added)
                    : chunk(id, model.slot, model.pos, tokens, model.pos + tokens == model.prompt, added));
        model.pos += tokens;
      }
      const auto result = apply(book, rows);
      ASSERT_TRUE(result.has_value()) << result.error().message;
      if (!live.empty() && random() % 5 == 0) {
        auto gone = std::next(live.begin(), static_cast<long>(random() % live.size()));
        const auto held = book.drop(RequestId{gone->first});
        ASSERT_EQ(held.has_value(), gone->second.pos > 0);
        if (held) {
          EXPECT_EQ(held->pages, gone->second.pages);
        }
        slots.insert(gone->second.slot);
        for (const PageId page : gone->second.pages) pages.insert(page.value);
        live.erase(gone);
      }
      int bound = 0;
      for (const auto& [id, model] : live) {
        if (model.pos == 0) continue;
        ++bound;
        const Book::Table table = book.table(RequestId{id});
        ASSERT_EQ(std::vector<PageId>(table.pages.begin(), table.pages.end()), model.pages);
      }
      ASSERT_EQ(book.held(), bound);
    }
  }
}

}  // namespace
}  // namespace tandem::rank
