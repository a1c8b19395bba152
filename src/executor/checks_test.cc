#include "executor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "executor/fake_ranks.h"

namespace tandem::executor {
namespace {

using testing::decode_row;
using ::testing::HasSubstr;
using testing::prefill_row;

const rank::Capacity kCapacity = {.slots = 8,
                                  .pages = 64,
                                  .max_context = 1024,
                                  .max_step_tokens = 512,
                                  .max_mixed_tokens = 128,
                                  .vocab = 1000};

rank::Step good_step() {
  rank::Step step{.rows = {decode_row(1, 0, 70), decode_row(2, 1, 1023), prefill_row(3, 2, 64, 0, false),
                           prefill_row(4, 3, 17, 128)},
                  .padding_rows = 2};
  step.rows[2].prompt_next = 5;
  step.rows[2].new_pages = {PageId{63}, PageId{0}};
  step.rows[2].prompt_logprobs = 20;
  step.rows[1].ids = {999};
  step.rows[3].score = 999;
  return step;
}

TEST(CheckStep, AcceptsAMixedStepOfEveryKindOfRow) {
  const auto right = check_step(good_step(), kCapacity, true);
  EXPECT_TRUE(right.has_value()) << right.error().message;
}

// proves R2.5
TEST(CheckStep, RefusesWhatTheControllerCanSee) {
  struct Case {
    const char* message;
    std::function<void(rank::Step&)> spoil;
  };
  const Case cases[] = {
      {"without rows", [](auto& s) { s.rows.clear(); }},
      {"padding_rows = -1", [](auto& s) { s.padding_rows = -1; }},
      {"9 padding rows; 8 fit", [](auto& s) { s.padding_rows = 9; }},
      {"row 1: request 1 stands twice", [](auto& s) { s.rows[1].request = RequestId{1}; }},
      {"has no request id", [](auto& s) { s.rows[0].request = RequestId{0}; }},
      {"names slot 8 of 8", [](auto& s) { s.rows[0].slot = SlotId{8}; }},
      {"names slot -1 of 8", [](auto& s) { s.rows[0].slot = SlotId{-1}; }},
      {"row 1: request 2 names slot 0, which another row", [](auto& s) { s.rows[1].slot = SlotId{0}; }},
      {"adds page 64 of 64", [](auto& s) { s.rows[0].new_pages = {PageId{64}}; }},
      {"adds page -1 of 64", [](auto& s) { s.rows[0].new_pages = {PageId{-1}}; }},
      {"adds page 63, which the step adds already", [](auto& s) { s.rows[0].new_pages = {PageId{63}}; }},
      {"has 0 tokens", [](auto& s) { s.rows[2].tokens = 0; }},
      {"covers positions 1024 to 1024", [](auto& s) { s.rows[1].base_pos = 1024; }},
      {"covers positions -64 to -1", [](auto& s) { s.rows[2].base_pos = -64; }},
      {"has 63 ids for 64 tokens", [](auto& s) { s.rows[2].ids.pop_back(); }},
      {"has 0 ids for 17 tokens", [](auto& s) { s.rows[3].ids.clear(); }},
      {"has 2 ids for 1 tokens",
       [](auto& s) {
         s.rows[0].ids = {1, 2};
       }},
      {"token id 1000", [](auto& s) { s.rows[1].ids = {1000}; }},
      {"token id -1", [](auto& s) { s.rows[2].ids[7] = -1; }},
      {"decodes 2 tokens at once",
       [](auto& s) {
         s.rows[0].tokens = 2;
         s.rows[0].ids = {1, 2};
       }},
      {"decodes at position 0", [](auto& s) { s.rows[0].base_pos = 0; }},
      {"chunk from position 100", [](auto& s) { s.rows[3].base_pos = 100; }},
      {"chunk to position 145 that does not end its prompt",
       [](auto& s) {
         s.rows[3].samples = false;
         s.rows[3].score = -1;
       }},
      {"a decode row that samples nothing", [](auto& s) { s.rows[0].samples = false; }},
      {"brings sampling settings", [](auto& s) { s.rows[3].sampling.emplace(); }},
      {"a first row without sampling settings", [](auto& s) { s.rows[2].sampling.reset(); }},
      {"scores an id but does not sample", [](auto& s) { s.rows[2].score = 1; }},
      {"asks to score id 1000", [](auto& s) { s.rows[3].score = 1000; }},
      {"asks to score id 1000", [](auto& s) { s.rows[2].prompt_next = 1000; }},
      {"asks for 21 alternatives", [](auto& s) { s.rows[0].top_logprobs = 21; }},
      {"asks for 21 alternatives", [](auto& s) { s.rows[2].prompt_logprobs = 21; }},
      {"a decode row and asks for prompt logprobs", [](auto& s) { s.rows[0].prompt_logprobs = 0; }},
      {"names no next prompt token", [](auto& s) { s.rows[2].prompt_next = -1; }},
      {"ends its prompt but names a next prompt token",
       [](auto& s) {
         s.rows[3].prompt_logprobs = 0;
         s.rows[3].prompt_next = 7;
       }},
      {"a decode row behind a prefill row", [](auto& s) { std::swap(s.rows[1], s.rows[2]); }},
      {"533 tokens; 512 fit",
       [](auto& s) {
         s.rows[2].tokens = 512;
         s.rows[2].ids.resize(512, 1);
       }},
      {"513 tokens; 512 fit", [](auto& s) { s = {.rows = {prefill_row(1, 0, 513)}}; }},
  };
  for (const Case& c : cases) {
    rank::Step step = good_step();
    c.spoil(step);
    const auto refused = check_step(step, kCapacity, true);
    ASSERT_FALSE(refused.has_value()) << c.message;
    EXPECT_EQ(refused.error().kind, ErrorKind::Invalid);
    EXPECT_THAT(refused.error().message, HasSubstr(c.message));
  }
}

TEST(CheckStep, BudgetsCountPaddingAndDependOnDecodeRows) {
  EXPECT_TRUE(check_step({.rows = {prefill_row(1, 0, 512)}}, kCapacity, true).has_value());
  EXPECT_FALSE(
      check_step({.rows = {prefill_row(1, 0, 512)}, .padding_rows = 1}, kCapacity, true).has_value());
  EXPECT_TRUE(check_step({.rows = {prefill_row(1, 0, 120)}, .padding_rows = 8}, kCapacity, true).has_value());
}

// The P1 stage of tensor parallelism: a step holds one kind of row.
TEST(CheckStep, MixedOffRefusesTwoKindsOfRow) {
  EXPECT_THAT(check_step(good_step(), kCapacity, false).error().message, HasSubstr("--mixed off"));
  EXPECT_TRUE(check_step({.rows = {decode_row(1, 0, 9)}, .padding_rows = 3}, kCapacity, false).has_value());
  EXPECT_TRUE(
      check_step({.rows = {prefill_row(1, 0, 9), prefill_row(2, 1, 9)}}, kCapacity, false).has_value());
  EXPECT_FALSE(check_step({.rows = {prefill_row(1, 0, 9)}, .padding_rows = 1}, kCapacity, false).has_value());
}

rank::Artifact token(std::uint64_t request, TokenId id = 7) {
  return {.request = RequestId{request}, .choice = ops::TokenChoice{.id = id}};
}

rank::StepResult good_result() {
  rank::StepResult result{{token(4, 999), token(1), token(2), {.request = RequestId{3}}}};
  result.artifacts[3].prompt_logprobs.resize(64);
  return result;
}

TEST(CheckArtifacts, AcceptsExactlyWhatTheStepOwesInAnyOrder) {
  const auto right = check_artifacts(good_step(), good_result(), kCapacity);
  EXPECT_TRUE(right.has_value()) << right.error().message;
}

// proves R2.4
TEST(CheckArtifacts, RefusesUnknownDuplicateMissingEarlyAndMalformedOnes) {
  struct Case {
    const char* message;
    std::function<void(rank::StepResult&)> spoil;
  };
  const Case cases[] = {
      {"request 9: an artifact, but no row", [](auto& r) { r.artifacts.push_back(token(9)); }},
      {"request 1: a second artifact", [](auto& r) { r.artifacts.push_back(token(1)); }},
      {"request 1: no artifact", [](auto& r) { r.artifacts.erase(r.artifacts.begin() + 1); }},
      {"request 3: no artifact", [](auto& r) { r.artifacts.pop_back(); }},
      {"request 3: a token before its prompt ends", [](auto& r) { r.artifacts[3].choice.emplace(); }},
      {"request 2: an artifact without its token", [](auto& r) { r.artifacts[2].choice.reset(); }},
      {"request 3: 63 scored prompt tokens instead of 64",
       [](auto& r) { r.artifacts[3].prompt_logprobs.pop_back(); }},
      {"request 2: 1 scored prompt tokens instead of 0",
       [](auto& r) { r.artifacts[2].prompt_logprobs.resize(1); }},
      {"request 1: chose id 1000", [](auto& r) { r.artifacts[1].choice->id = 1000; }},
      {"request 1: chose id -1", [](auto& r) { r.artifacts[1].choice->id = -1; }},
      {"request 4: scored id 7 instead of 999", [](auto& r) { r.artifacts[0].choice->id = 7; }},
      {"request 1: 21 alternatives", [](auto& r) { r.artifacts[1].choice->top_count = 21; }},
  };
  for (const Case& c : cases) {
    rank::StepResult result = good_result();
    c.spoil(result);
    const auto refused = check_artifacts(good_step(), result, kCapacity);
    ASSERT_FALSE(refused.has_value()) << c.message;
    EXPECT_EQ(refused.error().kind, ErrorKind::Protocol);
    EXPECT_THAT(refused.error().message, HasSubstr(c.message));
  }
}

// proves R2.4: a chunk that neither samples nor is scored owes nothing
TEST(CheckArtifacts, AnArtifactOfASilentChunkIsRefused) {
  rank::Step step = good_step();
  step.rows[2].prompt_logprobs = -1;
  rank::StepResult result = good_result();
  EXPECT_THAT(check_artifacts(step, result, kCapacity).error().message, HasSubstr("owes none"));
  result.artifacts.pop_back();
  EXPECT_TRUE(check_artifacts(step, result, kCapacity).has_value());
}

// proves R2.7: a request with a non-finite result is the scheduler's to end; the replica lives
TEST(CheckArtifacts, ANonFiniteChoiceNeedsNoId) {
  rank::StepResult result = good_result();
  result.artifacts[1].choice->id = -1;
  result.artifacts[1].choice->non_finite = 1;
  EXPECT_TRUE(check_artifacts(good_step(), result, kCapacity).has_value());
}

}  // namespace
}  // namespace tandem::executor
