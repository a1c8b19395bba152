#include "server/common_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/testing/fake_text.h"

namespace tandem::server {
namespace {

const testing::FakeText kText;
const ModelCard kCard{.names = {"m", "other"}};
const Served kServed{.card = kCard, .vocab = 300, .max_context = 1000, .max_choices = 16};

ChatRequest chat(std::string fields) {
  const auto body = parse_object(R"({"messages":[{"role":"user","content":"x"}])" + (fields.empty() ? "" : "," + fields) + "}");
  EXPECT_TRUE(body) << fields;
  auto request = read_chat_request(*body, kServed, kText);
  EXPECT_TRUE(request) << fields << ": " << (request ? "" : request.error().message);
  return request ? *request : ChatRequest{};
}

TEST(CommonFields, DefaultsAreTheCards) {
  ModelCard card{.names = {"m"}};
  card.sampling = {.temperature = 0.6f, .top_p = 0.95f, .top_k = 20, .min_p = 0.1f, .repetition_penalty = 1.1f};
  const Served served{.card = card, .vocab = 300, .max_context = 1000, .max_choices = 1};
  const auto body = parse_object(R"({"prompt":"x","top_k":-1})");
  const auto request = read_completion_request(*body, served);
  ASSERT_TRUE(request);
  const ops::SamplingParams& sampling = request->common.request.sampling;
  EXPECT_EQ(sampling.temperature, 0.6f);
  EXPECT_EQ(sampling.top_p, 0.95f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.repetition_penalty, 1.1f);
}

TEST(CommonFields, TopKOfTheVocabularyOrMoreIsOff) {
  for (const char* off : {"0", "-1", "300", "301", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_EQ(chat(std::string(R"("top_k":)") + off).common.request.sampling.top_k, 0) << off;
  }
  EXPECT_EQ(chat(R"("top_k":299)").common.request.sampling.top_k, 299);
}

TEST(CommonFields, TopPOfZeroIsTheBestTokenAlone) {
  const auto sampling = chat(R"("top_p":0,"temperature":0.7)").common.request.sampling;
  EXPECT_EQ(sampling.top_k, 1);
  EXPECT_EQ(sampling.top_p, 1.0f);
}

TEST(CommonFields, TinyTemperaturesAreGreedy) {
  EXPECT_EQ(chat(R"("temperature":1e-300)").common.request.sampling.temperature, 0.0f);
  EXPECT_EQ(chat(R"("temperature":0.01)").common.request.sampling.temperature, 0.01f);
}

TEST(CommonFields, SeedsAreTakenToTheLastBitAndMinusOneIsNone) {
  EXPECT_EQ(chat(R"("seed":18446744073709551615)").common.seed, 18446744073709551615u);
  EXPECT_EQ(chat(R"("seed":0)").common.seed, 0u);
  EXPECT_EQ(chat(R"("seed":-1)").common.seed, std::nullopt);
  EXPECT_EQ(chat("").common.seed, std::nullopt);
}

TEST(CommonFields, ChoicesHaveSeedsOfTheirOwnAndTheFirstTheRequests) {  // proves B108
  EXPECT_EQ(seed_of_choice(42, 0), 42u);
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (int i = 0; i < 16; ++i) seen.insert(seed_of_choice(seed, i));
  EXPECT_EQ(seen.size(), 1600u);
  EXPECT_EQ(seed_of_choice(42, 3), seed_of_choice(42, 3));
}

TEST(CommonFields, LogitBiasBecomesPairs) {
  const auto bias = chat(R"("logit_bias":{"15":100,"7":-0.5})").common.request.sampling.logit_bias;
  EXPECT_THAT(bias, ::testing::ElementsAre(std::pair<TokenId, float>{15, 100.0f}, std::pair<TokenId, float>{7, -0.5f}));
}

TEST(CommonFields, LimitsByEitherName) {
  EXPECT_EQ(chat(R"("max_tokens":5)").common.request.max_tokens, 5);
  EXPECT_EQ(chat(R"("max_completion_tokens":5)").common.request.max_tokens, 5);
  EXPECT_EQ(chat("").common.request.max_tokens, std::nullopt);
}

TEST(CommonFields, LogprobsOfBothEndpoints) {
  EXPECT_EQ(chat("").common.request.logprobs, -1);
  EXPECT_EQ(chat(R"("logprobs":true)").common.request.logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":20)").common.request.logprobs, 20);
  const auto body = parse_object(R"({"prompt":"x","logprobs":3,"echo":true})");
  const auto completion = read_completion_request(*body, kServed);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->common.request.logprobs, 3);
  EXPECT_EQ(completion->common.request.prompt_logprobs, 3);
}

TEST(CommonFields, EveryAliasIsServedAndShown) {
  EXPECT_EQ(chat(R"("model":"other")").common.model, "other");
  EXPECT_EQ(chat("").common.model, "m");
  const auto body = parse_object(R"({"prompt":"x","model":"Other"})");
  const auto refused = read_completion_request(*body, kServed);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 404);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("\"m\", \"other\""));
}

}  // namespace
}  // namespace tandem::server
