#include "engine/output.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/tokenizer_fixture.h"

namespace tandem::engine {
namespace {

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer kTokenizer =
      text::Tokenizer::parse(text::fixture::tokenizer_json(), text::fixture::tokenizer_config_json()).value();
  return kTokenizer;
}

struct Whole {
  std::string text, reasoning;
  std::vector<TokenId> tokens;
  std::vector<Delta> deltas;
  Finish finish;
  int posted_stops = 0;
};

// All tokens of `says`, then the end id if `ends`.
Whole run(Request request, std::string_view says, bool ends = false) {
  request.prompt = {1};
  std::vector<TokenId> ids = tokenizer().encode(says, text::SpecialTokens::Parse);
  if (ends) ids.push_back(*tokenizer().eos());
  Output output = Output::make(request, tokenizer()).value();
  Whole whole;
  const auto add = [&](Delta delta) {
    whole.text += delta.text;
    whole.reasoning += delta.reasoning_text;
    whole.tokens.insert(whole.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    whole.deltas.push_back(std::move(delta));
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Delta delta;
    whole.posted_stops += output.push({.id = ids[i]}, ends && i + 1 == ids.size(), delta) ? 1 : 0;
    add(std::move(delta));
  }
  Delta last;
  output.flush(last);
  add(std::move(last));
  whole.finish = output.finish({.reason = ends ? scheduler::EndReason::EndId : scheduler::EndReason::Length,
                                .completion_tokens = static_cast<std::int32_t>(ids.size()),
                                .end_id = *tokenizer().eos()});
  EXPECT_EQ(std::ssize(whole.tokens), whole.finish.usage.completion_tokens);
  ids.resize(whole.tokens.size());
  EXPECT_EQ(whole.tokens, ids);
  return whole;
}

TEST(Output, AStopStringCutsTheTextAndCountsToItsLastToken) {
  const Whole got = run({.stop = {"c d"}}, "a b c d e");
  EXPECT_EQ(got.text, "a b ");
  EXPECT_EQ(got.finish.reason, FinishReason::Stop);
  EXPECT_EQ(got.finish.stop_text, "c d");
  EXPECT_EQ(got.posted_stops, 1);
  EXPECT_EQ(tokenizer().decode(got.tokens, true), "a b c d");
}

TEST(Output, IncludeStopKeepsTheStopStringAndNothingAfter) {
  EXPECT_EQ(run({.stop = {"c d"}, .include_stop = true}, "a b c d e").text, "a b c d");
}

TEST(Output, WhatOnlyBeganLikeAStopStringComesOutAtTheEnd) {
  EXPECT_EQ(run({.stop = {"delta force"}}, "alpha delta").text, "alpha delta");
  EXPECT_EQ(run({.stop = {"delta force"}}, "alpha delta", true).text, "alpha delta");
}

TEST(Output, AStopStringAtTheVeryLastTokenBeatsTheLength) {
  const Whole got = run({.stop = {"yz"}}, "wxyz");
  EXPECT_EQ(got.text, "wx");
  EXPECT_EQ(got.finish.reason, FinishReason::Stop);
  EXPECT_EQ(got.finish.usage.completion_tokens, 4);
}

TEST(Output, StopStringsAreNotLookedForInTheFirstMinTokens) {
  Request request{.stop = {"b"}};
  request.sampling.min_tokens = 2;
  EXPECT_EQ(run(request, "abcabc").text, "abca");
}

TEST(Output, TheEndIdCountsButIsShownOnlyOnRequest) {
  EXPECT_EQ(run({}, "hi", true).text, "hi");
  EXPECT_EQ(run({.skip_special_tokens = false}, "hi", true).text, "hi");
  EXPECT_EQ(run({.include_stop = true, .skip_special_tokens = false}, "hi", true).text, "hi<|im_end|>");
  EXPECT_EQ(run({}, "hi", true).finish.stop_token, tokenizer().eos());
}

TEST(Output, ATokenTellsWhetherItsTextIsShown) {
  const auto last_in_text = [](Request request) {
    request.logprobs = 0;
    const Whole got = run(request, "a b", true);
    EXPECT_TRUE(got.deltas.front().logprobs.front().in_text);
    for (auto delta = got.deltas.rbegin();; ++delta)
      if (!delta->logprobs.empty()) return delta->logprobs.back().in_text;
  };
  EXPECT_FALSE(last_in_text({.skip_special_tokens = false}));
  EXPECT_TRUE(last_in_text({.include_stop = true, .skip_special_tokens = false}));
}

TEST(Output, ReasoningIsSplitOffOnlyWhenAskedFor) {
  const Whole split = run({.reasoning = true, .split_reasoning = true}, "I think.\n</think>\n\nhello");
  EXPECT_EQ(split.reasoning, "I think.");
  EXPECT_EQ(split.text, "hello");
  EXPECT_EQ(run({.reasoning = true}, "I think.</think>hello").text, "I think.</think>hello");
}

TEST(Output, TokensComeWithTheDeltaThatCompletesTheirText) {
  const Whole got = run({}, "\xE2\x82\xAC!");  // three tokens for one character, then one more
  ASSERT_EQ(got.deltas.size(), 5u);
  EXPECT_TRUE(got.deltas[0].tokens.empty());
  EXPECT_TRUE(got.deltas[1].tokens.empty());
  EXPECT_EQ(got.deltas[2].tokens.size(), 3u);
  EXPECT_EQ(got.deltas[2].text, "\xE2\x82\xAC");
  EXPECT_EQ(got.deltas[3].tokens.size(), 1u);
}

TEST(Output, NoDeltaShowsTextOfATokenThatItHasNotYetGiven) {
  std::mt19937 random(5);
  const std::string_view pieces[] = {
      "a",       "b",        " ",  "\xE2\x82\xAC", "hello",     "\xF0\x9F\x98\x80",
      "<think>", "</think>", "\n", "ab",           "<|im_end|>"};
  for (int round = 0; round < 2000; ++round) {
    std::string says;
    for (int i = 0; i < 12; ++i) says += pieces[random() % std::size(pieces)];
    Request request{.stop = round % 2 == 0 ? std::vector<std::string>{}
                                           : std::vector<std::string>{"bab", "a \xE2\x82\xAC"}};
    request.split_reasoning = round % 3 == 0;
    request.reasoning = round % 6 == 0;
    const Whole got = run(request, says);
    std::size_t text_bytes = 0, token_bytes = 0;
    for (const Delta& delta : got.deltas) {
      text_bytes += delta.text.size() + delta.reasoning_text.size();
      for (const TokenId id : delta.tokens) token_bytes += tokenizer().token_bytes(id).size();
      // A possible mark or stop string may be cut inside a token: then its first bytes come earlier.
      EXPECT_LE(text_bytes, token_bytes + 5) << "seed 5, round " << round << ": " << says;
    }
  }
}

}  // namespace
}  // namespace tandem::engine
