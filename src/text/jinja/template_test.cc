#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "text/json_value.h"

namespace tandem::text::jinja {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Variables variables(std::string_view json) {
  const auto value = parse_json(json);
  EXPECT_TRUE(value) << json;
  Variables out;
  for (const auto& [name, v] : value->as<Dict>().entries) out.emplace_back(name.as_string(), v);
  return out;
}

std::string render(std::string_view source, std::string_view json = "{}") {
  const auto parsed = Template::parse(source);
  if (!parsed) return "parse error: " + parsed.error().message;
  const auto out = parsed->render(variables(json));
  return out ? *out : "error: " + out.error().message;
}

TEST(JinjaTemplate, TextAroundTagsFollowsTrimAndLstripBlocks) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {%+ if true %}\nb{% endif +%}\nc"), "a\n  b\nc");
  EXPECT_EQ(render("a \n {%- if true -%} \n b {%- endif -%} \n c"), "abc");
  EXPECT_EQ(render("x {{- 1 -}} y"), "x1y");
  EXPECT_EQ(render("x\n  {# note #}\ny"), "x\ny");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(render("a\r\nb\rc\n\n"), "a\nb\nc\n");
}

TEST(JinjaTemplate, ValuesPrintAsInPython) {
  EXPECT_EQ(render("{{ [true, none, 1.0, 1e16, 'a', \"it's\", 1e-5] }}"),
            "[True, None, 1.0, 1e+16, 'a', \"it's\", 1e-05]");
  EXPECT_EQ(render("{{ {'a': (1,), 'b': {}} }}"), "{'a': (1,), 'b': {}}");
  EXPECT_EQ(render("{{ x }}|{{ missing }}", R"({"x": 123456789012345678901234567890})"),
            "123456789012345678901234567890|");
  EXPECT_EQ(render("{{ 7 // -2 }} {{ 7 % -2 }} {{ -7 // 2 }} {{ 2 ** 70 }} {{ 1 / 4 }}"),
            "-4 -1 -4 1180591620717411303424 0.25");
  EXPECT_EQ(render("{{ '\\n\\x7f\\u200b' ~ 'é' }}"), "\n\x7f\xe2\x80\x8b\xc3\xa9");
  EXPECT_EQ(render("{{ ['\\n', '\\x7f'] }}"), "['\\n', '\\x7f']");
}

TEST(JinjaTemplate, ToJsonIsJsonDumpsWithoutEscapes) {
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": {"b": [1, 1.0, true, null], "a": "é<&\n"}})"),
            "{\"b\": [1, 1.0, true, null], \"a\": \"é<&\\n\"}");
  EXPECT_EQ(render("{{ x | tojson(indent=2) }}", R"({"x": {"b": [1], "a": []}})"),
            "{\n  \"b\": [\n    1\n  ],\n  \"a\": []\n}");
  EXPECT_EQ(render("{{ '😀' | tojson(ensure_ascii=true) }}"), "\"\\ud83d\\ude00\"");
  EXPECT_EQ(render("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}"),
            "{\"a\":2,\"b\":1}");
}

TEST(JinjaTemplate, AnAssignmentInALoopStaysInsideOneInAnIfDoesNot) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
            "231");
  EXPECT_EQ(render("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor "
                   "%}{{ ns.n }}"),
            "3");
  EXPECT_EQ(render("{% macro f() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}"), "5");
}

TEST(JinjaTemplate, LoopsKnowTheirPlaceAndTheirNeighbours) {
  EXPECT_EQ(render("{% for c in 'abc' %}{{ loop.index }}{{ loop.previtem }}{{ c }}{{ loop.nextitem }}{% if "
                   "not loop.last %},{% endif %}{% endfor %}"),
            "1ab,2abc,3bc");
  EXPECT_EQ(render("{% for i in range(6) if i % 2 %}{{ i }}/{{ loop.length }} {% else %}none{% endfor %}"),
            "1/3 3/3 5/3 ");
  EXPECT_EQ(render("{% for i in [] %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif "
                   "%}{{ i }}{% endfor %}"),
            "013");
  EXPECT_EQ(render("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}"), "a1b2");
}

TEST(JinjaTemplate, MacrosTakeDefaultsKeywordsAndCallers) {
  EXPECT_EQ(render("{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=5) }} "
                   "{{ f(b=3) }}"),
            "122 125 33");
  EXPECT_EQ(render("{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}{{ x + 1 }}{% endcall %}"),
            "<2>");
  EXPECT_EQ(render("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"),
            "3210");
  EXPECT_EQ(render("{% generation %}{{ 1 + 1 }}{% endgeneration %}"), "2");
}

TEST(JinjaTemplate, UndefinedPrintsEmptyAndFailsWhenUsed) {
  EXPECT_EQ(render("[{{ x }}{{ m.a }}{{ 'y' if x }}{{ x is defined }}]", R"({"m": {}})"), "[False]");
  EXPECT_EQ(render("{{ x.y }}"), "error: line 1, column 5: 'x' is undefined");
  EXPECT_EQ(render("a\n {{ m.a.b }}", R"({"m": {}})"),
            "error: line 2, column 8: 'dict object' has no attribute 'a'");
  EXPECT_EQ(render("{{ x + 1 }}"), "error: line 1, column 6: 'x' is undefined");
}

TEST(JinjaTemplate, RaiseExceptionGivesItsMessageUnchanged) {
  EXPECT_EQ(render("{{ raise_exception('No user query found in messages.') }}"),
            "error: No user query found in messages.");
}

TEST(JinjaTemplate, StrftimeNowUsesTheGivenClock) {
  const auto parsed = Template::parse("{{ strftime_now('%Y-%m-%d') }}");
  ASSERT_TRUE(parsed);
  std::tm fixed{};
  fixed.tm_year = 124;
  fixed.tm_mday = 5;
  EXPECT_EQ(*parsed->render({}, {.limits = {}, .now = [&] { return fixed; }}), "2024-01-05");
}

TEST(JinjaTemplate, NothingOfTheInterpreterIsWithinReach) {
  EXPECT_EQ(render("{{ ''.__class__ }}|{{ {}['__init__'] }}|{{ [].append }}"), "||");
  EXPECT_THAT(render("{{ ''.__class__.__mro__ }}"), HasSubstr("unsafe"));
  EXPECT_THAT(render("{{ l.append(1) }}", R"({"l": []})"), HasSubstr("'append' of 'list' object is unsafe"));
  EXPECT_THAT(render("{{ namespace(_x=1) }}"), HasSubstr("underscore"));
  EXPECT_THAT(render("{{ range(1000000) }}"), HasSubstr("Range too big"));
}

TEST(JinjaTemplate, WhatIsNotThereIsRefusedByNameWhenRead) {
  EXPECT_EQ(render("{{ x | frobnicate }}"), "parse error: line 1, column 8: no filter named 'frobnicate'");
  EXPECT_EQ(render("{{ x is frobnicated }}"), "parse error: line 1, column 6: no test named 'frobnicated'");
  EXPECT_THAT(render("{{ x | urlize }}"), HasSubstr("'urlize' is not supported"));
  EXPECT_THAT(render("{% include 'x' %}"), HasSubstr("'include' is not supported"));
  EXPECT_THAT(render("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive"));
  // As in Jinja, an unknown filter under an `if` is an error only when it is reached.
  EXPECT_EQ(render("{% if false %}{{ x | frobnicate }}{% endif %}ok"), "ok");
}

TEST(JinjaTemplate, EveryMalformedTemplateNamesItsPlace) {
  for (const char* source : {"{{ x",
                             "{% if x %}",
                             "{% endif %}",
                             "{{ 'a }}",
                             "{{ (1 }}",
                             "{{ 1) }}",
                             "{{ [1, 2 }}",
                             "{{ {1: 2] }}",
                             "{# open",
                             "{% raw %}x",
                             "{{ 1 2 }}",
                             "{% set x = %}",
                             "{% set true = 1 %}",
                             "{% for loop in l %}{% endfor %}",
                             "{% break %}",
                             "{% nope %}",
                             "{{ a..b }}",
                             "{{ f(a=1, 2) }}",
                             "{{ x is }}",
                             "{{ }}",
                             "{% %}",
                             "{{ ! }}",
                             "{{ '\\x4' }}",
                             "{{ '\\ud800' }}",
                             "{% macro f(a=1, b) %}{% endmacro %}",
                             "{% macro f(a, a) %}{% endmacro %}",
                             "{% call x %}{% endcall %}",
                             "{% for x in l %}{% if x %}{% endfor %}",
                             "{{ a[1:2:3:4] }}",
                             "\xff",
                             "{{ \xff }}",
                             "{% elif %}",
                             "{% if x %}{% else %}{% else %}{% endif %}"}) {
    EXPECT_THAT(render(source), testing::MatchesRegex("parse error: line [0-9]+, column [0-9]+: .+"))
        << source;
  }
  EXPECT_THAT(render("a\nbc {{ é }"), StartsWith("parse error: line 2, column 9: "));
}

TEST(JinjaTemplate, OneParsedTemplateRendersOnManyThreads) {
  const auto parsed = Template::parse(
      "{% set s = 'const' %}{% for i in range(200) %}{{ s ~ i }}{% set s = 'x' %}{% endfor %}{{ x | tojson "
      "}}");
  ASSERT_TRUE(parsed);
  const std::string expected = *parsed->render(variables(R"({"x": [1]})"));
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) equal[t] += *parsed->render(variables(R"({"x": [1]})")) == expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(50));
}

}  // namespace
}  // namespace tandem::text::jinja
