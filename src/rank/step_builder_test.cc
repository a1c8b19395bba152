#include "rank/step_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::rank {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> ids(int first, int count) {
  std::vector<TokenId> made(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) made[static_cast<std::size_t>(i)] = first + i;
  return made;
}

// Two decode rows, two padding rows, and two prompt chunks: one that goes on and is scored, one that ends.
struct Example {
  Book book{4, 16};
  StepBuilder builder{SlotId{4}, PageId{16}};
  Step step;

  Example() {
    const auto first = [](std::uint64_t id, int slot, int tokens, std::vector<PageId> pages) {
      Row row{.request = RequestId{id},
              .slot = SlotId{slot},
              .kind = ops::RowKind::Prefill,
              .tokens = tokens,
              .ids = ids(100, tokens),
              .new_pages = std::move(pages)};
      row.sampling.emplace();
      return row;
    };
    Step before{.rows = {first(1, 2, 64, {PageId{9}}), first(2, 0, 5, {PageId{3}})}};
    EXPECT_TRUE(book.apply(before).has_value());
    step.rows = {
        {.request = RequestId{1},
         .slot = SlotId{2},
         .base_pos = 64,
         .new_pages = {PageId{1}},
         .generated = 1,
         .top_logprobs = 4},
        {.request = RequestId{2}, .slot = SlotId{0}, .base_pos = 5, .ids = {42}, .score = 43, .generated = 1},
        first(3, 1, 64, {PageId{0}}),
        first(4, 3, 3, {PageId{7}})};
    step.rows[2].samples = false;
    step.rows[2].prompt_logprobs = 2;
    step.rows[2].prompt_next = 500;
    step.rows[3].prompt_logprobs = 0;
    step.padding_rows = 2;
    EXPECT_TRUE(book.apply(step).has_value());
  }
};

TEST(StepBuilder, DecodeRowsThenPaddingThenPrefillRows) {
  Example e;
  const ops::StepView view = e.builder.build(e.step, e.book);
  ASSERT_EQ(view.rows.size(), 6u);
  EXPECT_EQ(view.decode_rows, 4);
  ASSERT_EQ(view.total_tokens(), 4 + 64 + 3);
  EXPECT_EQ(view.tokens[0], ops::kLastSampled);
  EXPECT_EQ(view.tokens[1], 42);
  EXPECT_EQ(view.tokens[4], 100);
  EXPECT_EQ(view.tokens[70], 102);
  int begin = 0;
  for (const ops::StepRow& row : view.rows) {
    EXPECT_EQ(row.token_begin, begin);
    begin += row.tokens;
  }
  const auto pages = [&](int row) {
    const ops::StepRow& r = view.rows[static_cast<std::size_t>(row)];
    const auto table =
        view.pages.subspan(static_cast<std::size_t>(r.page_begin), static_cast<std::size_t>(r.page_count));
    return std::vector<PageId>(table.begin(), table.end());
  };
  EXPECT_THAT(pages(0), ElementsAre(PageId{9}, PageId{1}));
  EXPECT_EQ(view.rows[0].known_pages, 1);
  EXPECT_THAT(pages(1), ElementsAre(PageId{3}));
  EXPECT_EQ(view.rows[1].known_pages, 1);
  EXPECT_THAT(pages(4), ElementsAre(PageId{0}));
  EXPECT_EQ(view.rows[4].known_pages, 0);
  EXPECT_EQ(view.rows[0].sampling, nullptr);
  EXPECT_EQ(view.rows[4].sampling, &*e.step.rows[2].sampling);
}

// proves R2.6: padding touches the trash slot and the scratch page only
TEST(StepBuilder, PaddingStandsOnTheTrashSlotAndTheScratchPage) {
  Example e;
  const ops::StepView view = e.builder.build(e.step, e.book);
  for (const int at : {2, 3}) {
    const ops::StepRow& row = view.rows[static_cast<std::size_t>(at)];
    EXPECT_EQ(row.kind, ops::RowKind::Decode);
    EXPECT_EQ(row.slot, SlotId{4});
    EXPECT_EQ(row.base_pos, 0);  // reads no state
    ASSERT_EQ(row.page_count, 1);
    EXPECT_EQ(view.pages[static_cast<std::size_t>(row.page_begin)], PageId{16});
  }
  for (const ops::LogitRow& row : view.logit_rows) EXPECT_NE(row.slot, SlotId{4});
}

TEST(StepBuilder, LogitRowsScoreThePromptAndSampleItsEnd) {
  Example e;
  const ops::StepView view = e.builder.build(e.step, e.book);
  ASSERT_EQ(view.logit_rows.size(), 1 + 1 + 64 + 3u);  // prompt of 3: two scored, one sampled
  const auto& rows = view.logit_rows;
  EXPECT_EQ(rows[0].token, 0);
  EXPECT_EQ(rows[0].position, 65);
  EXPECT_EQ(rows[0].target, -1);
  EXPECT_EQ(rows[0].top_logprobs, 4);
  EXPECT_EQ(rows[0].step_index, 1);
  EXPECT_EQ(rows[1].target, 43);
  EXPECT_EQ(rows[1].position, 6);
  EXPECT_EQ(rows[2].token, 4);
  EXPECT_EQ(rows[2].target, 101);
  EXPECT_EQ(rows[2].position, 1);
  EXPECT_EQ(rows[65].token, 67);
  EXPECT_EQ(rows[65].target, 500);  // the next chunk's first token
  EXPECT_EQ(rows[65].position, 64);
  EXPECT_EQ(rows[67].token, 69);
  EXPECT_EQ(rows[67].target, 102);
  EXPECT_EQ(rows[68].token, 70);
  EXPECT_EQ(rows[68].target, -1);
  EXPECT_EQ(rows[68].position, 3);
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1].token, rows[i].token);

  std::vector<ops::TokenChoice> choices(rows.size());
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i].id = static_cast<TokenId>(i);
  const std::vector<Artifact> artifacts = make_artifacts(e.builder.wanted(), choices);
  ASSERT_EQ(artifacts.size(), 4u);
  EXPECT_EQ(artifacts[0].choice->id, 0);
  EXPECT_EQ(artifacts[1].choice->id, 1);
  EXPECT_EQ(artifacts[2].request, RequestId{3});
  EXPECT_FALSE(artifacts[2].choice.has_value());
  ASSERT_EQ(artifacts[2].prompt_logprobs.size(), 64u);
  EXPECT_EQ(artifacts[2].prompt_logprobs[63].id, 65);
  ASSERT_EQ(artifacts[3].prompt_logprobs.size(), 2u);
  EXPECT_EQ(artifacts[3].choice->id, 68);
}

TEST(StepBuilder, AChunkThatNeitherSamplesNorIsScoredWantsNoLogits) {
  Example e;
  e.step.rows.erase(e.step.rows.begin(), e.step.rows.begin() + 2);
  e.step.rows.pop_back();
  e.step.rows[0].prompt_logprobs = -1;
  e.step.padding_rows = 0;
  const ops::StepView view = e.builder.build(e.step, e.book);
  EXPECT_THAT(view.logit_rows, IsEmpty());
  EXPECT_THAT(e.builder.wanted(), IsEmpty());
}

}  // namespace
}  // namespace tandem::rank
