// Templates and values that are made to exhaust the process: each must end with an error, quickly.

#include "text/jinja/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>

#include "text/jinja/template.h"

namespace tandem::text::jinja {
namespace {

using testing::HasSubstr;

std::string outcome(std::string_view source, const Limits& limits = {}) {
  const auto parsed = Template::parse(source);
  if (!parsed) return "parse error: " + parsed.error().message;
  const auto out = parsed->render({}, {.limits = limits, .now = {}});
  return out ? "ok" : out.error().message;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string repeated(std::string_view piece, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += piece;
  return out;
}

TEST(JinjaLimits, NestedLoopsEndWithinATenthOfASecond) {
  const auto parsed =
      Template::parse("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}");
  ASSERT_TRUE(parsed);
  // This thread's processor time, the least of five, so that a busy machine does not count.
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = cpu_seconds();
    const auto out = parsed->render({});
    least = std::min(least, cpu_seconds() - start);
    ASSERT_FALSE(out);
    EXPECT_THAT(out.error().message, HasSubstr("more than 2000000 steps"));
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(least, 0.1);
#endif
}

TEST(JinjaLimits, StringsThatDoubleEndAtTheByteLimit) {
  EXPECT_THAT(
      outcome(
          "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      HasSubstr("bytes of values"));
  EXPECT_THAT(outcome("{{ 'x' * 1000000000000 }}"), HasSubstr("bytes of values"));
  EXPECT_THAT(outcome("{{ [0] * 1000000000000 }}"), HasSubstr("bytes of values"));
  EXPECT_THAT(outcome("{{ 'x'.ljust(1000000000000) }}"), HasSubstr("bytes of values"));
  EXPECT_THAT(outcome("{{ 'x' | indent(1000000000000, true) }}"), HasSubstr("bytes of values"));
  EXPECT_THAT(outcome("{{ 'x' | center(1000000000000) }}"), HasSubstr("bytes of values"));
  EXPECT_THAT(outcome("{{ '%999999999999d' % 1 }}"), HasSubstr("wider"));
  EXPECT_THAT(outcome("{{ ('x' * 1000).replace('', 'y' * 1000000) }}"), HasSubstr("bytes of values"));
}

TEST(JinjaLimits, OutputEndsAtItsOwnLimit) {
  EXPECT_THAT(outcome("{% for i in range(1000) %}xxxxxxxxxx{% endfor %}", {.max_output_bytes = 1000}),
              HasSubstr("output is longer than 1000 bytes"));
}

TEST(JinjaLimits, StructuresThatAreExponentialAsTreesAreNotWalkedToTheEnd) {
  const std::string doubled =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% set "
      "ns.y = [ns.y, ns.y] %}{% endfor %}";
  EXPECT_THAT(outcome(doubled + "{{ ns.x }}"), HasSubstr("steps"));
  EXPECT_THAT(outcome(doubled + "{{ ns.x == ns.y }}"), HasSubstr("steps"));
  EXPECT_THAT(outcome(doubled + "{{ ns.x < ns.y }}"), HasSubstr("steps"));
  EXPECT_THAT(outcome(doubled + "{{ ns.x | tojson }}"), HasSubstr("steps"));
  const std::string tuples =
      "{% set ns = namespace(x=(1,)) %}{% for i in range(100) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}";
  EXPECT_THAT(outcome(tuples + "{{ {ns.x: 1} }}"), HasSubstr("steps"));
}

TEST(JinjaLimits, ValuesCannotBeNestedDeeply) {
  EXPECT_THAT(
      outcome("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("nested deeper than 200"));
  EXPECT_THAT(
      outcome(
          "{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {1: ns.x} %}{% endfor %}"),
      HasSubstr("nested deeper than 200"));
  EXPECT_THAT(outcome("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x]|batch(1) "
                      "%}{% endfor %}"),
              HasSubstr("nested deeper than 200"));
}

TEST(JinjaLimits, NamespacesThatHoldEachOtherAreFreed) {
  EXPECT_EQ(outcome("{% set a = namespace() %}{% set a.a = a %}{% set a.list = [a, [a]] %}"), "ok");
  EXPECT_EQ(outcome("{% set ns = namespace(x=none) %}{% for i in range(50000) %}{% set ns.x = "
                    "namespace(x=ns.x) %}{% endfor %}"),
            "ok");
  EXPECT_EQ(outcome("{% set ns = namespace(x=[0]) %}{% for i in range(2000) %}{% for j in [ns.x] %}{% set "
                    "ns.x = [loop] %}{% endfor %}{% endfor %}"),
            "ok");
}

TEST(JinjaLimits, RecursionEndsAtTheDepthLimit) {
  EXPECT_THAT(outcome("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("deeper than 1200"));
  EXPECT_THAT(outcome("{% macro f() %}{% call f() %}{% endcall %}{{ caller() }}{% endmacro %}{{ f() }}"),
              HasSubstr("deeper than"));
}

TEST(JinjaLimits, TemplatesCannotBeNestedDeeply) {
  for (const auto& [open, close] : {std::pair{"(", ")"},
                                    {"[", "]"},
                                    {"{1:", "}"},
                                    {"f(", ")"},
                                    {"a[", "]"},
                                    {"(1 if ", " else 2)"},
                                    {"not (", ")"}}) {
    EXPECT_THAT(outcome("{{ " + repeated(open, 5000) + "1" + repeated(close, 5000) + " }}"),
                HasSubstr("nested deeper than 100 levels"))
        << open;
    EXPECT_THAT(outcome("{{ " + repeated(open, 30) + "1" + repeated(close, 30) + " }}"),
                testing::Not(HasSubstr("nested")))
        << open;
  }
  EXPECT_THAT(outcome("{{ " + repeated("not ", 5000) + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(outcome("{{ " + repeated("-", 5000) + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(outcome(repeated("{% if true %}", 5000) + repeated("{% endif %}", 5000)),
              HasSubstr("nested deeper"));
  EXPECT_THAT(outcome("{{ " + repeated("1 + ", 5000) + "1 }}"), HasSubstr("more than 400 levels"));
  EXPECT_THAT(outcome("{{ a" + repeated(".b", 5000) + " }}"), HasSubstr("more than 400 levels"));
  EXPECT_THAT(outcome("{{ a" + repeated("|string", 5000) + " }}"), HasSubstr("more than 400 levels"));
  EXPECT_THAT(outcome("{% set " + repeated("(", 5000) + "a" + repeated(")", 5000) + " = 1 %}"),
              HasSubstr("nested deeper"));
  EXPECT_EQ(outcome("{{ " + repeated("1 + ", 300) + "1 }}"), "ok");
  EXPECT_EQ(outcome("{% if 0 %}" + repeated("{% elif 0 %}", 2000) + "{% endif %}"), "ok");
}

TEST(JinjaLimits, IntegersCannotGrowWithoutBound) {
  EXPECT_THAT(outcome("{{ 10 ** (10 ** 10) }}"), HasSubstr("bits"));
  EXPECT_THAT(outcome("{{ 10 ** 5000 }}"), HasSubstr("4300 digits"));
  EXPECT_THAT(
      outcome(
          "{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}"),
      HasSubstr("bits"));
}

}  // namespace
}  // namespace tandem::text::jinja
