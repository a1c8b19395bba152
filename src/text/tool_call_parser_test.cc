#include "text/tool_call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/tool_call_values.h"

namespace tandem::text {
namespace {

using testing::IsEmpty;

struct Parsed {
  std::string text;
  std::vector<std::string> calls;  // "name {...}"
  bool unfinished = false;
  friend bool operator==(const Parsed&, const Parsed&) = default;
};
std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "text {" << parsed.text << "} unfinished " << parsed.unfinished;
  for (const std::string& call : parsed.calls) out << "\n  " << call;
  return out;
}

const boost::json::array& tools() {
  static const boost::json::value kTools = boost::json::parse(R"([
    {"type":"function","function":{"name":"read_file","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},
    {"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{
        "path":{"type":"string"},"content":{"type":"string"}}}}},
    {"type":"function","function":{"name":"shell","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}},
    {"type":"function","function":{"name":"all","parameters":{"type":"object","properties":{
        "i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"o":{"type":"object"},"a":{"type":"array"},
        "s":{"type":["string","null"]},"e":{"enum":["x","y"]},"u":{"anyOf":[{"type":"integer"},{"type":"string"}]},"free":{}}}}},
    {"type":"function","function":{"name":"now"}}])");
  return kTools.get_array();
}

class Collector {
 public:
  void add(const ToolCallParser::Piece& piece) {
    parsed_.text += piece.text;
    for (const ToolCallParser::CallDelta& call : piece.calls) {
      const auto index = static_cast<std::size_t>(call.index);
      EXPECT_EQ(call.name.empty(), index < parsed_.calls.size()) << "the name comes once, first";
      if (!call.name.empty()) parsed_.calls.push_back(call.name + " ");
      parsed_.calls.at(index) += call.arguments;
    }
  }
  Parsed finish(ToolCallParser& parser) {
    add(parser.finish());
    parsed_.unfinished = parser.unfinished_call();
    EXPECT_EQ(parser.calls(), static_cast<int>(parsed_.calls.size()));
    return parsed_;
  }

 private:
  Parsed parsed_;
};

Parsed parse(std::string_view text, const std::vector<std::size_t>& cuts) {
  ToolCallParser parser(tools());
  Collector collector;
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    collector.add(parser.push(text.substr(at, cut - at)));
    at = cut;
  }
  collector.add(parser.push(text.substr(at)));
  return collector.finish(parser);
}

// The result, after proving that it is the same for every size of piece and every single cut.
Parsed parse(std::string_view text) {
  const Parsed whole = parse(text, {});
  for (const std::size_t size : {1, 2, 3, 7}) {
    std::vector<std::size_t> cuts;
    for (std::size_t cut = size; cut < text.size(); cut += size) cuts.push_back(cut);
    EXPECT_EQ(parse(text, cuts), whole) << text << "\nin pieces of " << size;
  }
  for (std::size_t cut = 0; cut <= text.size(); ++cut) EXPECT_EQ(parse(text, {cut}), whole) << text << "\ncut at " << cut;
  for (const std::string& call : whole.calls) {
    if (whole.unfinished && &call == &whole.calls.back()) continue;
    boost::json::error_code error;
    EXPECT_TRUE(boost::json::parse(call.substr(call.find(' ')), error).is_object()) << call;
  }
  return whole;
}

std::string call(std::string_view function, std::string_view parameters) {
  return "<tool_call>\n<function=" + std::string(function) + ">\n" + std::string(parameters) + "</function>\n</tool_call>";
}
std::string parameter(std::string_view key, std::string_view value) {
  return "<parameter=" + std::string(key) + ">\n" + std::string(value) + "\n</parameter>\n";
}

TEST(ToolCallParser, OneCall) {
  EXPECT_EQ(parse("I look.\n\n" + call("read_file", parameter("path", "a.txt"))), (Parsed{"I look.", {R"(read_file {"path":"a.txt"})"}}));
}

TEST(ToolCallParser, SeveralCallsAndTextAround) {
  EXPECT_EQ(parse("A\n" + call("read_file", parameter("path", "a")) + "\n" + call("now", "") + "\n\nB\n"),
            (Parsed{"AB\n", {R"(read_file {"path":"a"})", "now {}"}}));
}

TEST(ToolCallParser, ValuesKeepTheirBlanksAndLoseOneLineBreakAtEitherEnd) {  // B087
  EXPECT_EQ(parse(call("write_file", parameter("path", "x.py") + parameter("content", "    if x:\n        return 1\n"))).calls,
            std::vector<std::string>{R"(write_file {"path":"x.py","content":"    if x:\n        return 1\n"})"});
  EXPECT_EQ(parse(call("shell", parameter("command", "   "))).calls, std::vector<std::string>{R"(shell {"command":"   "})"});
  EXPECT_EQ(parse(call("shell", parameter("command", ""))).calls, std::vector<std::string>{R"(shell {"command":""})"});
  EXPECT_EQ(parse(call("shell", "<parameter=command>\n</parameter>\n")).calls, std::vector<std::string>{R"(shell {"command":""})"});
  EXPECT_EQ(parse(call("shell", parameter("command", "\n\n"))).calls, std::vector<std::string>{R"(shell {"command":"\n\n"})"});
}

TEST(ToolCallParser, NothingIsDecodedInAValue) {  // B088
  EXPECT_EQ(parse(call("shell", parameter("command", "pwd && ls -la < in.txt > out.txt; echo \"&lt;\" \\ \t\x01"))).calls,
            std::vector<std::string>{R"(shell {"command":"pwd && ls -la < in.txt > out.txt; echo \"&lt;\" \\ \t\u0001"})"});
}

TEST(ToolCallParser, MarksInsideAValueAreText) {  // B089
  EXPECT_EQ(parse(call("write_file", parameter("path", "p") + parameter("content", "The block ends with </parameter> and then </tool_call> here."))),
            (Parsed{"", {R"(write_file {"path":"p","content":"The block ends with </parameter> and then </tool_call> here."})"}}));
  EXPECT_EQ(parse(call("write_file", parameter("content", "a\n</parameter>\nb\n</function>\nc\n<parameter=other>\n<parameter=content>\nd"))),
            (Parsed{"", {R"(write_file {"content":"a\n</parameter>\nb\n</function>\nc\n<parameter=other>\n<parameter=content>\nd"})"}}));
}

TEST(ToolCallParser, AForgottenClosingMarkLosesNoParameter) {  // B090
  EXPECT_EQ(parse("<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n<parameter=content>\nprint(1)\n</function>\n</tool_call>"),
            (Parsed{"", {R"j(write_file {"path":"a.py","content":"print(1)"})j"}}));
  EXPECT_EQ(parse("<tool_call>\n<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</tool_call>after"),
            (Parsed{"after", {R"(read_file {"path":"a.py"})"}}));
}

TEST(ToolCallParser, ValuesOnTheLineOfTheirMarks) {
  EXPECT_EQ(parse("<tool_call><function=write_file><parameter=path>a b</parameter><parameter=content>x<y\n</parameter></function></tool_call>"),
            (Parsed{"", {R"(write_file {"path":"a b","content":"x<y"})"}}));
}

TEST(ToolCallParser, AnAnswerCutInsideACallIsABeginningOfJson) {
  const std::string whole = call("write_file", parameter("path", "a.py") + parameter("content", "print(1)"));
  const std::string arguments = R"j(write_file {"path":"a.py","content":"print(1)"})j";
  for (std::size_t end = 0; end < whole.size(); ++end) {
    const Parsed parsed = parse(whole.substr(0, end));
    EXPECT_EQ(parsed.text, end == 1 ? "<" : "") << end;
    ASSERT_LE(parsed.calls.size(), 1u);
    for (const std::string& cut : parsed.calls) {
      EXPECT_TRUE(arguments.starts_with(cut)) << end << " " << cut;
      EXPECT_EQ(parsed.unfinished, cut != arguments) << end;
    }
  }
  EXPECT_EQ(parse(whole.substr(0, whole.find("print(1)") + 8)), (Parsed{"", {R"j(write_file {"path":"a.py","content":"print(1))j"}, true}));
}

TEST(ToolCallParser, TextThatOnlyMentionsMarksPassesUnchanged) {
  for (const char* text : {"Use <tool_call> like this.", "<tool_call>\n<function=>\n", "<tool_call>\n\nno", "a < b </tool_call> <function=f> x",
                           "<tool_call>\n<function=a b>", "<tool_calls>\n\n", "\n\n text \n"}) {
    EXPECT_EQ(parse(text), (Parsed{text, {}})) << text;
  }
}

TEST(ToolCallParser, APieceOfAMarkAtTheEndIsNotShown) {  // B099
  for (const char* trunk : {"<tool", "<tool_call>", "<tool_call>\n<func", "<tool_call>\n<function=read"}) {
    EXPECT_EQ(parse("So:" + std::string(trunk)), (Parsed{"So:", {}})) << trunk;
  }
}

TEST(ToolCallParser, ValuesFollowTheSchema) {
  const auto value = [](std::string_view key, std::string_view text) {
    const Parsed parsed = parse(call("all", parameter(key, text)));
    const std::string prefix = "all {\"" + std::string(key) + "\":";
    EXPECT_TRUE(parsed.calls.at(0).starts_with(prefix));
    return parsed.calls.at(0).substr(prefix.size(), parsed.calls.at(0).size() - prefix.size() - 1);
  };
  EXPECT_EQ(value("i", "42"), "42");
  EXPECT_EQ(value("i", " -7\n"), "-7");
  EXPECT_EQ(value("i", "many"), R"("many")");
  EXPECT_EQ(value("n", "1.50e3"), "1.50e3");
  EXPECT_EQ(value("n", "0x10"), R"("0x10")");
  EXPECT_EQ(value("b", "True"), "true");
  EXPECT_EQ(value("b", "false"), "false");
  EXPECT_EQ(value("b", "None"), R"("None")");
  EXPECT_EQ(value("o", "{\"k\": [1, 2]}"), R"({"k": [1, 2]})");
  EXPECT_EQ(value("o", "{'k': 1}"), R"("{'k': 1}")");
  EXPECT_EQ(value("a", "[\n  1\n]"), "[\n  1\n]");
  EXPECT_EQ(value("s", "None"), "null");
  EXPECT_EQ(value("s", "42"), R"("42")");
  EXPECT_EQ(value("e", "x"), R"("x")");
  EXPECT_EQ(value("u", "42"), "42");
  EXPECT_EQ(value("u", "4 2"), R"("4 2")");
  EXPECT_EQ(value("free", "42"), R"("42")");
  EXPECT_EQ(value("unknown", "{}"), R"("{}")");
}

TEST(ToolCallParser, TheFirstOfTwoValuesCounts) {
  EXPECT_EQ(parse(call("read_file", parameter("path", "a") + parameter("path", "b"))).calls, std::vector<std::string>{R"(read_file {"path":"a"})"});
}

TEST(ToolCallParser, FunctionsThatAreNoToolAreCallsToo) {
  EXPECT_EQ(parse(call("guess", parameter("x", "1"))).calls, std::vector<std::string>{R"(guess {"x":"1"})"});
}

TEST(ToolCallParser, StringsComeOutWhileTheyComeIn) {
  ToolCallParser parser(tools());
  auto piece = parser.push("<tool_call>\n<function=write_file>\n");
  EXPECT_EQ(piece.calls.at(0).name, "write_file");
  EXPECT_EQ(parser.push("<parameter=content>\nab").calls.at(0).arguments, R"({"content":"ab)");
  EXPECT_EQ(parser.push("cd <").calls.at(0).arguments, "cd <");
  EXPECT_THAT(parser.push("\n").calls, IsEmpty());
  EXPECT_EQ(parser.push("ef").calls.at(0).arguments, R"(\nef)");
}

TEST(ToolCallParser, PiecesNeverChangeTheResult) {
  constexpr const char* kParts[] = {"<tool_call>", "\n", "<function=write_file>", "<parameter=path>", "<parameter=content>", "\n</parameter>", "\n</function>",
                                    "\n</tool_call>", "</parameter>", "a", " ", "<", "\n\n", "é\"\\", "</", "<parameter=", "x>"};
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    std::string text = random() % 2 == 0 ? "<tool_call>\n<function=write_file>\n" : "";
    for (unsigned n = random() % 14; n > 0; --n) text += kParts[random() % std::size(kParts)];
    (void)parse(text);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(ToolCallParser, AMegabyteInPiecesOfOneByteIsLinear) {
  for (const std::string_view unit : {"a", "<", "\n", " ", "\n</parameter>\n", "<tool_call>\n\n", "\n<parameter=q"}) {
    std::string text = "<tool_call>\n<function=write_file>\n<parameter=content>\n";
    while (text.size() < 1 << 20) text += unit;
    ToolCallParser parser(tools());
    std::size_t given = 0;
    for (const char c : text) {
      for (const auto& call : parser.push({&c, 1}).calls) given += call.arguments.size();
    }
    EXPECT_GT(given, 0u) << unit;
  }
}

TEST(ToolCallValues, SchemasThatSayNothingMeanAString) {
  for (const char* schema : {"{}", "true", R"({"$ref":"#/x"})", R"({"type":"unheard-of"})", R"({"nullable":true})"}) {
    EXPECT_TRUE(types_of(boost::json::parse(schema)).string) << schema;
  }
  EXPECT_TRUE(types_of(boost::json::parse(R"({"type":"string"})")).only_string());
  EXPECT_TRUE(types_of(boost::json::parse(R"({"oneOf":[{"type":"boolean"},{"const":3}]})")).number);
  EXPECT_FALSE(types_of(boost::json::parse(R"({"type":"null"})")).string);
}

}  // namespace
}  // namespace tandem::text
