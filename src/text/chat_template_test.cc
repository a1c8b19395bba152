#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <fstream>

namespace tandem::text {
namespace {

using testing::HasSubstr;

// A folder of its own for each test, removed at its end.
class ModelFolder {
 public:
  ModelFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            (std::string("tandem_template_") + test->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, std::string_view text) const { std::ofstream(path_ / name) << text; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

boost::json::array array(std::string_view text) { return boost::json::parse(text).get_array(); }
boost::json::object object(std::string_view text) { return boost::json::parse(text).get_object(); }

std::string rendered(const ChatTemplate& t, std::string_view tools = "[]",
                     std::string_view variables = "{}") {
  const auto out =
      t.render(array(R"([{"role": "user", "content": "hi"}])"), array(tools), true, object(variables));
  return out ? *out : out.error().field + ": " + out.error().message;
}

TEST(ChatTemplate, TheFileOfItsOwnComesBeforeTheOneInTheConfig) {
  ModelFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_EQ(rendered(*ChatTemplate::load(folder.path())), "config <s>");
  folder.write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}{{ pad_token }}");
  EXPECT_EQ(rendered(*ChatTemplate::load(folder.path())), "file <s></s>");
}

TEST(ChatTemplate, AListHasADefaultAndPerhapsOneForTools) {
  ModelFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "D{{ tools }}"}, {"name": "tool_use", "template": "T{{ tools[0].name }}{{ extra }}"}]})");
  const auto loaded = ChatTemplate::load(folder.path());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(rendered(*loaded), "DNone");
  EXPECT_EQ(rendered(*loaded, R"([{"name": "f"}])"), "Tf");
  EXPECT_TRUE(loaded->reads("extra"));
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(ChatTemplate::load(folder.path()).error().message, HasSubstr("\"default\""));
}

TEST(ChatTemplate, AModelWithoutOneAndBrokenFilesAreToldApart) {
  ModelFolder folder;
  EXPECT_EQ(ChatTemplate::load(folder.path()).error().kind, ErrorKind::NotFound);
  folder.write("tokenizer_config.json", "{}");
  EXPECT_EQ(ChatTemplate::load(folder.path()).error().kind, ErrorKind::NotFound);
  folder.write("tokenizer_config.json", "{");
  EXPECT_EQ(ChatTemplate::load(folder.path()).error().kind, ErrorKind::Invalid);
  folder.write("tokenizer_config.json", "{}");
  folder.write("chat_template.jinja", "a\n{% if %}");
  const auto error = ChatTemplate::load(folder.path()).error();
  EXPECT_EQ(error.kind, ErrorKind::Invalid);
  EXPECT_THAT(error.message, HasSubstr("chat_template.jinja: chat template, line 2, column 7: "));
}

TEST(ChatTemplate, VariablesOfTheRequestAreCheckedAgainstTheTemplate) {
  const auto t = ChatTemplate::parse(
      "{% macro m() %}{{ inner }}{% endmacro %}{% if enable_thinking is defined %}{{ enable_thinking }}{% "
      "endif %}"
      "{% set own = 1 %}{{ own }}{% if style is not defined %}{% set style = 'plain' %}{% endif %}{{ style "
      "}}{{ range(1)|list }}");
  ASSERT_TRUE(t);
  for (const char* name : {"enable_thinking", "inner", "style"}) EXPECT_TRUE(t->reads(name)) << name;
  for (const char* name : {"own", "m", "range", "messages", "tools", "foo"})
    EXPECT_FALSE(t->reads(name)) << name;
  EXPECT_EQ(rendered(*t), "1plain[0]");
  EXPECT_EQ(rendered(*t, "[]", R"({"enable_thinking": false, "style": "x"})"), "False1x[0]");
  EXPECT_EQ(rendered(*t, "[]", R"({"enable_thinking": null})"), "1plain[0]");
  for (const char* value : {"\"false\"", "0", "[]"}) {  // B077
    EXPECT_THAT(rendered(*t, "[]", std::string("{\"enable_thinking\": ") + value + "}"),
                HasSubstr("chat_template_kwargs.enable_thinking: chat_template_kwargs.enable_thinking must "
                          "be true or false"));
  }
  EXPECT_THAT(rendered(*t, "[]", R"({"foo": 1})"), HasSubstr("chat_template_kwargs.foo is not read"));
  for (const char* own : {"messages", "tools", "add_generation_prompt", "documents"}) {  // B080
    EXPECT_THAT(rendered(*t, "[]", std::string("{\"") + own + "\": []}"), HasSubstr("cannot be set")) << own;
  }
}

TEST(ChatTemplate, WhatTheTemplateRaisesIsTheRequestsFault) {
  const auto t = ChatTemplate::parse("{{ raise_exception('No user query found in messages.') }}");
  const auto error = t->render(array("[]"), array("[]"), true, object("{}")).error();
  EXPECT_EQ(error.kind, ErrorKind::Invalid);
  EXPECT_EQ(error.message, "No user query found in messages.");
  EXPECT_EQ(error.field, "messages");
}

TEST(ChatTemplate, ToolDescriptionsKeepTheirCharactersAndTheirOrder) {  // B078
  const auto t = ChatTemplate::parse("{{ tools[0] | tojson }}");
  EXPECT_EQ(rendered(*t, R"([{"z": "查询天气 — “сегодня”", "a": {"città": 1.0}}])"),
            R"({"z": "查询天气 — “сегодня”", "a": {"città": 1.0}})");
}

TEST(ChatTemplate, ArgumentsAsJsonTextBecomeAMappingInTheGivenOrder) {  // B066
  const auto t = ChatTemplate::parse(
      "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments|items %}"
      "{{ k }}={{ v if v is string else v|tojson }};{% endfor %}{% endfor %}{% endfor %}");
  const auto with = [&](std::string_view arguments) {
    const auto out = t->render(
        array(R"([{"role":"user","content":"w"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"g","arguments":)" +
              std::string(arguments) + R"(}}]}])"),
        {}, true, {});
    return out ? *out : out.error().field + ": " + out.error().message;
  };
  EXPECT_EQ(with(R"("{\"city\":\"Oslo\",\"tags\":[\"a\"],\"big\":123456789012345678901234567890,\"b\":1}")"),
            "city=Oslo;tags=[\"a\"];big=123456789012345678901234567890;b=1;");
  EXPECT_EQ(with(R"({"city":"Oslo","days":3})"), "city=Oslo;days=3;");
  for (const char* broken : {R"("")", R"("{")", R"("[1]")", R"("null")", R"("7")"})  // B067
    EXPECT_EQ(with(broken).find("messages[1].tool_calls[0].function.arguments: "), 0u) << broken;
}

TEST(ChatTemplate, OnlyAnOpenThinkingBlockAtTheEndMakesTheAnswerReasoning) {
  EXPECT_TRUE(ends_inside_think("<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(ends_inside_think("<think>"));
  EXPECT_FALSE(ends_inside_think("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_inside_think("user: what is <think>?\nassistant: "));
  EXPECT_FALSE(ends_inside_think(""));
  EXPECT_FALSE(ends_inside_think(" \n"));
  const std::string prompt = "what is <think>?\nassistant: <think>since";
  EXPECT_TRUE(ends_inside_think(prompt, prompt.find("assistant")));
  EXPECT_FALSE(ends_inside_think("what is <think>?\nassistant: since", 17));
}

}  // namespace
}  // namespace tandem::text
