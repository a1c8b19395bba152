#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

TEST(JsonWriter, WritesMembersInTheOrderOfTheCalls) {
  JsonWriter json;
  json.begin_object().member("b", 1).key("a").begin_array().number(2).null().boolean(true).end_array();
  json.member("c", "x").end_object();
  EXPECT_EQ(json.take(), R"({"b":1,"a":[2,null,true],"c":"x"})");
}

TEST(JsonWriter, NumbersAreTheShortestThatReadBackTheSame) {
  JsonWriter json;
  json.begin_array().number(0.7).number(0.1f).number(1e300).number(-0.0).end_array();
  EXPECT_EQ(json.take(), "[0.7,0.1,1e+300,-0]");
}

TEST(JsonWriter, NonFiniteNumbersBecomeNull) {
  JsonWriter json;
  json.begin_array().number(std::numeric_limits<double>::infinity()).number(std::numeric_limits<double>::quiet_NaN()).end_array();
  EXPECT_EQ(json.take(), "[null,null]");
}

TEST(JsonWriter, EscapesWhatJsonCannotHoldAndKeepsUtf8) {
  JsonWriter json;
  json.string(std::string_view("q\" b\\ n\n z\0 \x1f é", 16));
  EXPECT_EQ(json.take(), "\"q\\\" b\\\\ n\\n z\\u0000 \\u001f é\"");
}

}  // namespace
}  // namespace tandem
