#include "text/json_value.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace tandem::text {
namespace {

std::string printed(std::string_view json) {
  const auto value = parse_json(json);
  return value ? jinja::to_text(*value) : "error: " + value.error().message;
}

TEST(JsonValue, ReadsAsPythonDoes) {
  EXPECT_EQ(printed(R"( {"b": [1, 1.0, -0, -0.0, 1e3, true, null], "a": "x"} )"),
            "{'b': [1, 1.0, 0, -0.0, 1000.0, True, None], 'a': 'x'}");
  EXPECT_EQ(printed("18446744073709551616"), "18446744073709551616");
  EXPECT_EQ(printed(R"({"a": 1, "b": 2, "a": 3})"), "{'a': 3, 'b': 2}");
  EXPECT_EQ(jinja::to_text(*parse_json(R"("\u00e9\ud83d\ude00\n\/")")), "é😀\n/");
}

TEST(JsonValue, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           "{",
                           "[1,]",
                           "{\"a\" 1}",
                           "{'a': 1}",
                           "01",
                           "1.",
                           "1e",
                           "-",
                           "nul",
                           "NaN",
                           "Infinity",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"a",
                           "\"\n\"",
                           "1 2",
                           "[1",
                           "\"\xff\"",
                           "{\"a\":1,}",
                           "+1",
                           ".5"}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
}

TEST(JsonValue, NestingIsBounded) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)));
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth + 1)));
  EXPECT_FALSE(parse_json(std::string(1000000, '[')));
  boost::json::parse_options deep;
  deep.max_depth = 300;
  EXPECT_FALSE(to_value(boost::json::parse(nested(200), {}, deep)));
  EXPECT_TRUE(to_value(boost::json::parse(nested(90), {}, deep)));
}

TEST(JsonValue, BoostDocumentsBecomeTheSameValues) {
  const std::string text = R"({"b": [1, 1.5, true, null, "é"], "a": {"k": 18446744073709551615}})";
  EXPECT_TRUE(jinja::equal(*parse_json(text), *to_value(boost::json::parse(text))));
}

}  // namespace
}  // namespace tandem::text
