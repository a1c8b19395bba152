#include "server/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "server/testing/fake_text.h"
#include "server/testing/gather.h"

namespace tandem::server {
namespace {

namespace json = boost::json;
using testing::events_of;

const testing::FakeText kText;

json::array weather_tool() {
  return json::parse(R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object",
      "properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}}])").as_array();
}

AnswerHead head(bool stream) {
  return {.id = "chatcmpl-1", .created = 7, .model = "m", .stream = stream, .include_usage = true};
}

engine::Delta saying(std::string text) {
  engine::Delta delta;
  delta.text = std::move(text);
  return delta;
}

const engine::Finish kStop{.reason = engine::FinishReason::Stop, .usage = {3, 4}};

std::string text(const json::value& value) { return std::string(value.as_string()); }

// The whole body for a text that came in the given pieces.
json::value whole(const std::vector<std::string>& pieces, const ChatFormat::Reading& reading, engine::Finish finish = kStop) {
  ChatFormat format(head(false), 1, reading, kText);
  std::string out;
  for (const std::string& piece : pieces) format.delta(0, saying(piece), out);
  EXPECT_EQ(out, "");
  format.finish(0, finish, out);
  format.end(out);
  return json::parse(out);
}

// What a stream's deltas add up to, in the shape of a whole answer's choice.
json::object gathered(const std::vector<std::string>& pieces, const ChatFormat::Reading& reading, engine::Finish finish = kStop) {
  ChatFormat format(head(true), 1, reading, kText);
  std::string out;
  for (const std::string& piece : pieces) format.delta(0, saying(piece), out);
  format.finish(0, finish, out);
  format.end(out);
  std::string content, reasoning, reason;
  json::array calls;
  int roles = 0;
  const auto events = events_of(out);
  EXPECT_EQ(events.back(), json::value("[DONE]"));
  EXPECT_TRUE(events[events.size() - 2].at("choices").as_array().empty());
  EXPECT_EQ(events[events.size() - 2].at("usage").at("total_tokens").as_int64(), 7);
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_TRUE(events[i].at("usage").is_null());
    const auto& choice = events[i].at("choices").at(0);
    const auto& delta = choice.at("delta").as_object();
    roles += delta.contains("role");
    EXPECT_EQ(delta.contains("role"), i == 0);
    if (const auto* part = delta.if_contains("content")) content += text(*part);
    if (const auto* part = delta.if_contains("reasoning_content")) reasoning += text(*part);
    if (const auto* parts = delta.if_contains("tool_calls")) {
      for (const auto& part : parts->as_array()) {
        const auto index = static_cast<std::size_t>(part.at("index").as_int64());
        if (index >= calls.size()) calls.push_back(json::object{{"name", ""}, {"arguments", ""}});
        auto& call = calls[index].as_object();
        const auto& function = part.at("function").as_object();
        if (const auto* name = function.if_contains("name")) call["name"] = *name;
        call["arguments"].as_string().append(function.at("arguments").as_string());
      }
    }
    if (!choice.at("finish_reason").is_null()) {
      EXPECT_EQ(reason, "");
      reason = text(choice.at("finish_reason"));
    }
  }
  return {{"content", content}, {"reasoning", reasoning}, {"calls", calls}, {"reason", reason}};
}

json::object gathered_of_whole(const json::value& body) {
  const auto& choice = body.at("choices").at(0);
  const auto& message = choice.at("message").as_object();
  json::array calls;
  if (const auto* list = message.if_contains("tool_calls"))
    for (const auto& call : list->as_array())
      calls.push_back(json::object{{"name", call.at("function").at("name")}, {"arguments", call.at("function").at("arguments")}});
  const auto* reasoning = message.if_contains("reasoning_content");
  return {{"content", message.at("content").is_null() ? "" : message.at("content").as_string()},
          {"reasoning", reasoning ? reasoning->as_string() : json::string()},
          {"calls", calls},
          {"reason", choice.at("finish_reason")}};
}

TEST(ChatFormat, StreamEqualsWholeForEverySplit) {
  const std::vector<std::string> answers = {
      "plain", "", "weighing it</think>Answer. a</thin b", "<think>\nhm\n</think>\n\nok",
      "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
      "a <tool_call> b", "thought\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"};
  std::mt19937 random(20);
  for (const std::string& answer : answers) {
    for (const bool inside : {false, true}) {
      for (const bool tools : {false, true}) {
        const ChatFormat::Reading reading{.inside_think = inside, .tools = tools ? weather_tool() : json::array()};
        const json::object expected = gathered_of_whole(whole({answer}, reading));
        for (int round = 0; round < 20; ++round) {
          std::vector<std::string> pieces;
          for (std::size_t at = 0; at < answer.size();) {
            const std::size_t size = 1 + random() % 7;
            pieces.push_back(answer.substr(at, size));
            at += size;
          }
          EXPECT_EQ(gathered(pieces, reading), expected) << answer << " inside " << inside << " tools " << tools;
          EXPECT_EQ(gathered_of_whole(whole(pieces, reading)), expected);
        }
      }
    }
  }
}

TEST(ChatFormat, ToolCallsAreTheReasonOnlyWhenTheyAreComplete) {
  const ChatFormat::Reading reading{.tools = weather_tool()};
  const std::string call = "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(gathered({call}, reading).at("reason"), "tool_calls");
  const engine::Finish length{.reason = engine::FinishReason::Length, .usage = {3, 4}};
  EXPECT_EQ(gathered({call}, reading, length).at("reason"), "length");
  EXPECT_EQ(gathered({call.substr(0, 60)}, reading).at("reason"), "stop");
  EXPECT_EQ(gathered({"<tool_call> is a mark"}, reading).at("reason"), "stop");
}

TEST(ChatFormat, TokensWithoutTextStillGiveTheirLogprobs) {
  AnswerHead asked = head(true);
  asked.logprobs = true;
  ChatFormat format(asked, 1, {}, kText);
  std::string out;
  engine::Delta delta;
  delta.tokens = {195};
  delta.logprobs = {{.id = 195, .logprob = -0.25f}};
  format.delta(0, delta, out);
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 1u);
  const auto& entry = events[0].at("choices").at(0).at("logprobs").at("content").at(0);
  EXPECT_EQ(text(entry.at("token")), "\xef\xbf\xbd");
  EXPECT_EQ(entry.at("bytes").at(0).as_int64(), 195);
}

TEST(ChatFormat, ATokenThatTheTextLeavesOutHasItsNameAndNoBytes) {
  AnswerHead asked = head(true);
  asked.logprobs = true;
  asked.skip_special_tokens = false;
  for (const bool shown : {true, false}) {
    ChatFormat format(asked, 1, {}, kText);
    std::string out;
    engine::Delta delta;
    delta.tokens = {65};
    delta.logprobs = {{.id = 65, .logprob = -0.25f, .in_text = shown}};
    format.delta(0, delta, out);
    const auto events = events_of(out);
    ASSERT_EQ(events.size(), 1u);
    const auto& entry = events[0].at("choices").at(0).at("logprobs").at("content").at(0);
    EXPECT_EQ(text(entry.at("token")), "A");
    EXPECT_EQ(entry.at("bytes").as_array().size(), shown ? 1u : 0u);
  }
}

TEST(ChatFormat, UsageCountsThePromptOnceAndAllChoices) {
  ChatFormat format(head(false), 2, {}, kText);
  std::string out;
  format.finish(1, kStop, out);
  format.finish(0, kStop, out);
  format.end(out);
  const auto body = json::parse(out);
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 3);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 8);
  EXPECT_EQ(body.at("choices").at(1).at("index").as_int64(), 1);
}

TEST(ChatFormat, OnlyTheRequestsOwnStopIdsAreShown) {
  AnswerHead own = head(false);
  own.stop_token_ids = {9};
  for (const auto& [id, shown] : {std::pair<TokenId, std::string>{9, "9"}, {257, "null"}}) {
    ChatFormat format(own, 1, {}, kText);
    std::string out;
    format.finish(0, {.usage = {1, 1}, .stop_token = id}, out);
    format.end(out);
    EXPECT_EQ(json::serialize(json::parse(out).at("choices").at(0).at("stop_reason")), shown);
  }
}

}  // namespace
}  // namespace tandem::server
