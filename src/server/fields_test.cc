#include "server/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace tandem::server {
namespace {

using ::testing::HasSubstr;

json::object object(std::string_view text) { return json::parse({text.data(), text.size()}).as_object(); }

TEST(Fields, NullIsAbsent) {
  const auto body = object(R"({"a": null})");
  Fields fields(body);
  EXPECT_EQ(fields.integer("a", 0, 9), std::nullopt);
  EXPECT_EQ(fields.any("a"), nullptr);
  fields.refuse_the_rest("");
  EXPECT_TRUE(fields.ok());
}

TEST(Fields, TypesAreStrict) {
  for (const char* value : {"true", "\"1\"", "1.0", "1e0", "[]", "{}"}) {
    const auto body = object(std::string(R"({"a": )") + value + "}");
    Fields fields(body);
    EXPECT_EQ(fields.integer("a", 0, 9), std::nullopt) << value;
    EXPECT_FALSE(fields.ok()) << value;
  }
  for (const char* value : {"true", "\"1\"", "[]"}) {
    const auto body = object(std::string(R"({"a": )") + value + "}");
    Fields fields(body);
    EXPECT_EQ(fields.number("a", 0, 9), std::nullopt) << value;
    EXPECT_FALSE(fields.ok()) << value;
  }
  for (const char* value : {"1", "0", "\"true\""}) {
    const auto body = object(std::string(R"({"a": )") + value + "}");
    Fields fields(body);
    EXPECT_EQ(fields.boolean("a"), std::nullopt) << value;
    EXPECT_FALSE(fields.ok()) << value;
  }
}

TEST(Fields, TheFirstErrorStays) {
  const auto body = object(R"({"a": 11, "b": "x"})");
  Fields fields(body, "m[2].");
  (void)fields.integer("a", 0, 9);
  (void)fields.integer("b", 0, 9);
  ASSERT_TRUE(fields.error());
  EXPECT_EQ(fields.error()->param, "m[2].a");
  EXPECT_THAT(fields.error()->message, HasSubstr("from 0 to 9, got 11"));
}

TEST(Fields, NumbersBeyondTheRangeOrFinitenessAreRefused) {
  for (const char* value : {"1e999", "-1e999", "1.0001", "-0.0001", "18446744073709551615"}) {
    const auto body = object(std::string(R"({"a": )") + value + "}");
    Fields fields(body);
    EXPECT_EQ(fields.number("a", 0, 1), std::nullopt) << value;
    EXPECT_FALSE(fields.ok()) << value;
  }
}

TEST(Fields, DefaultsPassAndOtherValuesOfTheSameFieldDoNot) {
  static constexpr std::array<OnlyDefault, 3> kOnly = {{{"a", "1", ""}, {"b", "[]", ""}, {"c", "\"x\"", "Use d."}}};
  const auto good = object(R"({"a": 1.0, "b": [], "c": "x"})");
  Fields fields(good);
  fields.only_default(kOnly);
  fields.refuse_the_rest("");
  EXPECT_TRUE(fields.ok());
  const auto bad = object(R"({"a": 1, "c": "y"})");
  Fields refused(bad);
  refused.only_default(kOnly);
  ASSERT_TRUE(refused.error());
  EXPECT_EQ(refused.error()->param, "c");
  EXPECT_THAT(refused.error()->message, HasSubstr("Use d."));
}

TEST(Fields, UnknownFieldsAreNamed) {
  const auto body = object(R"({"a": 1, "weird\u0007name": 2})");
  Fields fields(body);
  (void)fields.integer("a", 0, 9);
  fields.refuse_the_rest("Only a works.");
  ASSERT_TRUE(fields.error());
  EXPECT_EQ(fields.error()->code, "unknown_field");
  EXPECT_THAT(fields.error()->message, HasSubstr("weird name"));
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "{\"a\":1}x", "{\"a\":NaN}", "{\"a\":1,}", "\xef\xbb\xbf{}", "{\"a\":\"\xc0\x80\"}",
                           "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\\udc00\"}", "nul"}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
  EXPECT_TRUE(parse_json(" {\"a\":\"\\ud83d\\ude00 \\u0000\"}\r\n\t"));
}

TEST(ParseJson, DepthIsBounded) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(100)));
  EXPECT_FALSE(parse_json(nested(101)));
  const auto error = parse_json(std::string(1'000'000, '['));
  ASSERT_FALSE(error);
  EXPECT_THAT(error.error().message, HasSubstr("100 levels"));
}

TEST(ParseJson, OfEqualKeysTheLastCounts) {
  const auto value = parse_json(R"({"a":1,"a":2})");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->as_object().at("a").as_int64(), 2);
}

TEST(ShownValue, IsShortWhateverCame) {
  json::array many(100000);
  EXPECT_EQ(shown_value(many), "a list of 100000");
  EXPECT_LT(shown_value(json::value(std::string(5'000'000, 'x'))).size(), 80u);
  EXPECT_EQ(shown_value(json::value(true)), "true");
}

}  // namespace
}  // namespace tandem::server
