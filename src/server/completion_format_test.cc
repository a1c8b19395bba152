#include "server/completion_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/testing/fake_text.h"
#include "server/testing/gather.h"

namespace tandem::server {
namespace {

namespace json = boost::json;
using testing::events_of;

const testing::FakeText kText;

AnswerHead head(bool stream, int top) {
  return {.id = "cmpl-1", .created = 7, .model = "m", .stream = stream, .logprobs = true, .top_logprobs = top};
}

engine::Delta delta_of(std::string text) {
  engine::Delta delta;
  for (const unsigned char c : text) {
    delta.tokens.push_back(c);
    delta.logprobs.push_back({.id = c, .logprob = -1.0f, .top = {{c, -1.0f}}});
  }
  delta.text = std::move(text);
  return delta;
}

TEST(CompletionFormat, OffsetsCountCharactersAcrossCutOnes) {
  CompletionFormat format(head(false, 0), 1, std::nullopt, kText);
  std::string out;
  format.delta(0, delta_of("aé漢b"), out);
  format.finish(0, {.usage = {1, 7}}, out);
  format.end(out);
  const auto logprobs = json::parse(out).at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs.at("text_offset"), json::parse("[0,1,2,2,3,3,3]"));
  EXPECT_TRUE(logprobs.at("top_logprobs").is_null());
}

TEST(CompletionFormat, EchoPutsThePromptBeforeTheText) {
  for (const bool stream : {false, true}) {
    CompletionFormat format(head(stream, 1), 1, CompletionFormat::Echo{.text = "hi", .prompt = {104, 105}}, kText);
    std::string out;
    engine::Delta first = delta_of("x");
    first.prompt_logprobs = {{.id = 105, .logprob = -2.0f, .top = {{105, -2.0f}}}};
    format.delta(0, std::move(first), out);
    format.finish(0, {.usage = {2, 1}}, out);
    format.end(out);
    const auto choice = (stream ? events_of(out)[0] : json::parse(out)).at("choices").at(0);
    EXPECT_EQ(choice.at("text").as_string(), "hix");
    EXPECT_EQ(choice.at("logprobs").at("token_logprobs"), json::parse("[null,-2,-1]"));
    EXPECT_EQ(choice.at("logprobs").at("text_offset"), json::parse("[0,1,2]"));
    EXPECT_TRUE(choice.at("logprobs").at("top_logprobs").at(0).is_null());
  }
}

TEST(CompletionFormat, ScoringShowsNoGeneratedToken) {
  CompletionFormat format(head(false, 1), 1, CompletionFormat::Echo{.text = "hi", .prompt = {104, 105}, .score_only = true}, kText);
  std::string out;
  engine::Delta first = delta_of("x");
  first.prompt_logprobs = {{.id = 105, .logprob = -2.0f, .top = {{105, -2.0f}}}};
  format.delta(0, std::move(first), out);
  format.finish(0, {.usage = {2, 1}, .stop_token = 257}, out);
  format.end(out);
  const auto body = json::parse(out);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "hi");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("tokens").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST(CompletionFormat, TokensThatShowAlikeKeepOneKeyTheBetter) {
  CompletionFormat format(head(false, 3), 1, std::nullopt, kText);
  std::string out;
  engine::Delta delta;
  delta.tokens = {200};
  delta.logprobs = {{.id = 200, .logprob = -3.0f, .top = {{201, -1.0f}, {202, -2.0f}, {200, -3.0f}}}};
  format.delta(0, std::move(delta), out);
  format.finish(0, {.usage = {1, 1}}, out);
  format.end(out);
  const auto top = json::parse(out).at("choices").at(0).at("logprobs").at("top_logprobs").at(0).as_object();
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top.begin()->value().to_number<double>(), -1.0);
}

TEST(CompletionFormat, ImpossibleTokensHaveAFloor) {
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), kImpossibleLogprob);
  EXPECT_EQ(finite_logprob(-1.5f), -1.5f);
}

}  // namespace
}  // namespace tandem::server
