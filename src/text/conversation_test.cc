#include "text/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "text/chat_template.h"

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
  const auto render = [](const Conversation& c) {
    return chat_template.render(c.messages, c.tools, c.add_generation_prompt, c.variables);
  };
  const auto out = make_prompt(render, {.messages = boost::json::parse(messages).get_array(),
                                        .tools = {},
                                        .variables = boost::json::parse(variables).get_object(),
                                        .add_generation_prompt = generates,
                                        .continue_final_message = continues});
  if (!out) {
    EXPECT_EQ(out.error().kind, ErrorKind::Invalid);
    EXPECT_FALSE(out.error().field.empty());
    return "error at " + out.error().field + ": " + out.error().message;
  }
  if (inside != nullptr) *inside = out->inside_think;
  return out->text;
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
