#include "text/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace tandem::text {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Writes turns as the Qwen3.5 family does: reasoning of earlier turns is dropped, arguments are printed
// one by one, the answer begins in a thinking block unless that is switched off.
constexpr std::string_view kTemplate = R"({%- for m in messages %}
{%- if m.role == 'system' %}{{- '<sys>' + m.content|trim + '<end>' }}
{%- elif m.role == 'assistant' %}
    {{- '<asst>' }}{% if loop.last %}{{ '<think>' ~ m.reasoning_content ~ '</think>' }}{% endif %}{{ m.content|trim }}
    {%- for c in m.tool_calls %}{{- '[' + c.function.name }}{% for k, v in c.function.arguments|items %}{{ ' ' ~ k ~ '=' ~ (v if v is string else v|tojson) }}{% endfor %}{{ ']' }}{% endfor %}
    {{- '<end>' }}
{%- else %}{{- '<' + m.role + '>' + m.content|trim + '<end>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<asst><think>\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}{% endif %})";

std::string prompt(std::string_view messages, bool continues = false, bool generates = true,
                   std::string_view variables = "{}", bool* inside = nullptr) {
  static const auto chat_template = *ChatTemplate::parse(kTemplate);
  ChatInput input{.messages = boost::json::parse(messages).get_array(),
                  .tools = {},
                  .variables = boost::json::parse(variables).get_object(),
                  .add_generation_prompt = generates,
                  .continue_final_message = continues};
  const auto out = make_prompt(chat_template, input);
  if (!out) {
    EXPECT_EQ(out.error().kind, ErrorKind::Invalid);
    EXPECT_FALSE(out.error().field.empty());
    return "error at " + out.error().field + ": " + out.error().message;
  }
  if (inside != nullptr) *inside = out->inside_think;
  return out->text;
}

TEST(Conversation, LeadingSystemAndDeveloperMessagesAreOneSystemTurn) {  // B064
  EXPECT_EQ(
      prompt(
          R"([{"role":"developer","content":"A"},{"role":"developer","content":"B"},{"role":"user","content":"hi"}])"),
      "<sys>A\n\nB<end><user>hi<end><asst><think>\n");
  EXPECT_EQ(
      prompt(
          R"([{"role":"system","content":"A"},{"role":"developer","content":"B"},{"role":"user","content":"hi"}])"),
      "<sys>A\n\nB<end><user>hi<end><asst><think>\n");
  EXPECT_EQ(prompt(R"([{"role":"system","content":"A"}])"), "<sys>A<end><asst><think>\n");
}

TEST(Conversation, ALaterSystemMessageIsRefusedByIndex) {  // B063
  EXPECT_THAT(
      prompt(
          R"([{"role":"user","content":"hi"},{"role":"assistant","content":"x"},{"role":"system","content":"now"},{"role":"user","content":"ok"}])"),
      StartsWith("error at messages[2]: "));
}

TEST(Conversation, ArgumentsAsJsonTextBecomeAnObjectInTheGivenOrder) {  // B066
  const auto with = [](std::string_view arguments) {
    return prompt(
        std::string(
            R"([{"role":"user","content":"w"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":)") +
        std::string(arguments) + R"(}}]},{"role":"tool","tool_call_id":"c1","content":"rain"}])");
  };
  const std::string expected =
      "<user>w<end><asst>[get city=Oslo days=3 tags=[\"a\"] "
      "big=123456789012345678901234567890]<end><tool>rain<end><asst><think>\n";
  EXPECT_EQ(
      with(R"("{\"city\":\"Oslo\",\"days\":3,\"tags\":[\"a\"],\"big\":123456789012345678901234567890}")"),
      expected);
  EXPECT_EQ(with(R"({"city":"Oslo","days":3,"tags":["a"]})"),
            "<user>w<end><asst>[get city=Oslo days=3 tags=[\"a\"]]<end><tool>rain<end><asst><think>\n");
  EXPECT_EQ(with(R"("")"), "<user>w<end><asst>[get]<end><tool>rain<end><asst><think>\n");
  for (const char* broken : {R"("{")", R"("[1]")", R"("null")", R"("7")", "7", "null", "[1]"}) {  // B067
    EXPECT_THAT(with(broken), StartsWith("error at messages[1].tool_calls[0].function.arguments: "))
        << broken;
  }
  EXPECT_THAT(
      prompt(
          R"([{"role":"user","content":"w"},{"role":"assistant","content":"","tool_calls":[{"id":"c1"}]}])"),
      StartsWith("error at messages[1].tool_calls[0].function: "));
}

TEST(Conversation, TextPartsAreJoinedAndOtherPartsRefusedByName) {  // B070, B071
  EXPECT_EQ(
      prompt(R"([{"role":"user","content":[{"type":"text","text":"Say "},{"type":"text","text":"hello"}]}])"),
      "<user>Say hello<end><asst><think>\n");
  EXPECT_EQ(
      prompt(
          R"([{"role":"user","content":"q"},{"role":"tool","content":[{"type":"text","text":"105"},{"type":"text","text":"25"}]}])"),
      "<user>q<end><tool>10525<end><asst><think>\n");
  const auto user = [](const std::string& content) {
    return prompt("[{\"role\":\"user\",\"content\":" + content + "}]");
  };
  EXPECT_THAT(user("[]"), StartsWith("error at messages[0].content: "));
  EXPECT_THAT(user(R"([{"type":"text"}])"), StartsWith("error at messages[0].content[0].text: "));
  EXPECT_THAT(user(R"([{"type":"image_url","image_url":{"url":"x"}}])"), HasSubstr("\"image_url\""));
  EXPECT_THAT(user(R"([{"type":"text","text":"a"},{"type":"foo"}])"),
              StartsWith("error at messages[0].content[1].type: "));
  EXPECT_THAT(user("null"), StartsWith("error at messages[0].content: "));
}

TEST(Conversation, ToolResultsThatAreNoTextAreRefused) {  // B072
  for (const char* content : {R"({"temp":4})", "42", "true", R"(["a","b"])", "null"}) {
    EXPECT_THAT(
        prompt(std::string(R"([{"role":"user","content":"q"},{"role":"tool","content":)") + content + "}]"),
        StartsWith("error at messages[1].content"))
        << content;
  }
}

TEST(Conversation, AnAssistantMayLackContent) {
  EXPECT_EQ(
      prompt(
          R"([{"role":"user","content":"q"},{"role":"assistant","content":null},{"role":"user","content":"r"}])"),
      "<user>q<end><asst><end><user>r<end><asst><think>\n");
}

TEST(Conversation, RolesAndShapesAreChecked) {
  EXPECT_THAT(prompt(R"([{"role":"robot","content":"q"}])"), StartsWith("error at messages[0].role: "));
  EXPECT_THAT(prompt(R"([{"content":"q"}])"), StartsWith("error at messages[0].role: "));
  EXPECT_THAT(prompt("[1]"), StartsWith("error at messages[0]: "));
}

TEST(Conversation, ReasoningIsFoundUnderEveryNameForIt) {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    EXPECT_EQ(prompt(std::string(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a",")") +
                         name + R"(":"why"}])",
                     false, false),
              "<user>q<end><asst><think>why</think>a<end>");
  }
}

TEST(Conversation, ALastAssistantMessageIsAFinishedTurnWhateverTheSwitchSays) {  // B076
  const std::string messages =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"1. apple\n2."}])";
  for (const char* variables : {"{}", R"({"enable_thinking":true})", R"({"enable_thinking":false})"}) {
    EXPECT_THAT(prompt(messages, false, true, variables),
                StartsWith("<user>q<end><asst><think></think>1. apple\n2.<end><asst><think>\n"));
  }
}

TEST(Conversation, AContinuedMessageEndsThePromptExactly) {  // B075
  bool inside = true;
  EXPECT_EQ(prompt(R"([{"role":"user","content":"1+1=?"},{"role":"assistant","content":"The result is "}])",
                   true, false, R"({"enable_thinking":true})", &inside),
            "<user>1+1=?<end><asst><think></think>The result is ");
  EXPECT_FALSE(inside);
  EXPECT_THAT(prompt(R"([{"role":"user","content":"q"},{"role":"assistant","content":"<think>since"}])", true,
                     false, "{}", &inside),
              testing::EndsWith("<think>since"));
  EXPECT_TRUE(inside);
  EXPECT_THAT(prompt(R"([{"role":"user","content":"what is <think>"},{"role":"assistant","content":"It"}])",
                     true, false, "{}", &inside),
              testing::EndsWith("</think>It"));
  EXPECT_FALSE(inside);
}

TEST(Conversation, WhatCannotBeContinuedIsRefused) {
  EXPECT_THAT(prompt(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])", true, true),
              StartsWith("error at continue_final_message: "));
  EXPECT_THAT(prompt(R"([{"role":"user","content":"q"}])", true, false),
              StartsWith("error at continue_final_message: "));
  EXPECT_THAT(prompt("[]", true, false), StartsWith("error at continue_final_message: "));
  EXPECT_THAT(
      prompt(
          R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"f"}}]}])",
          true, false),
      StartsWith("error at continue_final_message: "));
}

TEST(Conversation, ThinkingIsReportedAsThePromptHasIt) {
  bool inside = false;
  (void)prompt(R"([{"role":"user","content":"hi"}])", false, true, "{}", &inside);
  EXPECT_TRUE(inside);
  (void)prompt(R"([{"role":"user","content":"hi"}])", false, true, R"({"enable_thinking":false})", &inside);
  EXPECT_FALSE(inside);
  (void)prompt(R"([{"role":"user","content":"<think>"}])", false, false, "{}", &inside);
  EXPECT_FALSE(inside);
}

}  // namespace
}  // namespace tandem::text
