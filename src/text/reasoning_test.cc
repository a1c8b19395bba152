#include "text/reasoning.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tandem::text {
namespace {

struct Split {
  std::string reasoning, content;
  friend bool operator==(const Split&, const Split&) = default;
};
std::ostream& operator<<(std::ostream& out, const Split& split) {
  return out << "reasoning {" << split.reasoning << "} content {" << split.content << "}";
}

Split split(std::string_view text, ReasoningSplitter::Options options, std::size_t size) {
  ReasoningSplitter splitter(options);
  Split out;
  const auto add = [&](const ReasoningSplitter::Piece& piece) {
    out.reasoning += piece.reasoning;
    out.content += piece.content;
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(splitter.push(text.substr(at, size)));
  add(splitter.finish());
  EXPECT_EQ(splitter.held_bytes(), 0u);
  return out;
}

// The result, after proving that it is the same for every size of piece and every single cut.
Split split(std::string_view text, ReasoningSplitter::Options options) {
  const Split whole = split(text, options, text.size() + 1);
  for (std::size_t size = 1; size <= 8; ++size) EXPECT_EQ(split(text, options, size), whole) << text << " in pieces of " << size;
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    ReasoningSplitter splitter(options);
    const auto a = splitter.push(text.substr(0, cut)), b = splitter.push(text.substr(cut)), c = splitter.finish();
    EXPECT_EQ((Split{a.reasoning + b.reasoning + c.reasoning, a.content + b.content + c.content}), whole) << text << " cut at " << cut;
  }
  return whole;
}

constexpr ReasoningSplitter::Options kInside{.inside = true};
constexpr ReasoningSplitter::Options kOutside{};
constexpr ReasoningSplitter::Options kInsideWithTools{.inside = true, .tool_calls_end_reasoning = true};

TEST(ReasoningSplitter, TextUpToTheClosingTagIsReasoning) {  // B086
  EXPECT_EQ(split("weighing it</think>Answer. a</thin b", kInside), (Split{"weighing it", "Answer. a</thin b"}));
  EXPECT_EQ(split("a </thin> <b> c</think>d", kInside), (Split{"a </thin> <b> c", "d"}));
  EXPECT_EQ(split("</think>x", kInside), (Split{"", "x"}));
}

TEST(ReasoningSplitter, LineBreaksAroundTheTagsAreDroppedAndNoOthers) {
  EXPECT_EQ(split("\na\n\nb\n</think>\n\n  x\n", kInside), (Split{"a\n\nb", "  x\n"}));
  EXPECT_EQ(split("\n\n</think>\n\n", kInside), (Split{"", ""}));
  EXPECT_EQ(split("\n x\n", kOutside), (Split{"", "\n x\n"}));
}

TEST(ReasoningSplitter, WithoutAClosingTagAllIsReasoning) {
  EXPECT_EQ(split("Is it? Let me see\n", kInside), (Split{"Is it? Let me see", ""}));
  EXPECT_EQ(split("Yes.</think> No", kOutside), (Split{"", "Yes.</think> No"}));
}

TEST(ReasoningSplitter, AnOpeningTagAtTheVeryStartIsNotShown) {
  EXPECT_EQ(split("<think>\nhm</think>\n\nyes", kOutside), (Split{"hm", "yes"}));
  EXPECT_EQ(split("<think>\nhm</think>\n\nyes", kInside), (Split{"hm", "yes"}));
  EXPECT_EQ(split("a<think>b", kOutside), (Split{"", "a<think>b"}));
  EXPECT_EQ(split("<thing>", kOutside), (Split{"", "<thing>"}));
}

TEST(ReasoningSplitter, LaterTagsAreText) { EXPECT_EQ(split("a</think>b</think><think>c", kInside), (Split{"a", "b</think><think>c"})); }

TEST(ReasoningSplitter, AToolCallEndsReasoningWhenCallsAreUnderstood) {
  const std::string call = "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(split("Need the file.\n" + call, kInsideWithTools), (Split{"Need the file.", call}));
  EXPECT_EQ(split("Need the file.\n" + call, kInside).content, "");
  EXPECT_EQ(split("I use <tool_call> next.</think>ok", kInsideWithTools), (Split{"I use <tool_call> next.", "ok"}));
}

TEST(ReasoningSplitter, APieceOfATagAtTheEndIsDropped) {  // B099
  EXPECT_EQ(split("so\n</thi", kInside), (Split{"so", ""}));
  EXPECT_EQ(split("so <tool_call>\n<func", kInsideWithTools), (Split{"so ", ""}));
  EXPECT_EQ(split("if a <", kInside), (Split{"if a <", ""}));
  EXPECT_EQ(split("<", kOutside), (Split{"", "<"}));
}

TEST(ReasoningSplitter, PiecesNeverChangeTheResult) {
  constexpr const char* kParts[] = {"<think>", "</think>", "<tool_call>", "\n", "<function=f>", "<", "</", "a", " ", "</thin", "think>", "é", ">"};
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (unsigned n = random() % 12; n > 0; --n) text += kParts[random() % std::size(kParts)];
    (void)split(text, {.inside = random() % 2 == 0, .tool_calls_end_reasoning = random() % 2 == 0});
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(ReasoningSplitter, PlainTextIsNeverDelayed) {
  ReasoningSplitter splitter(kInside);
  EXPECT_EQ(splitter.push("abc").reasoning, "abc");
  EXPECT_EQ(splitter.push(" 1 < 2").reasoning, " 1 < 2");
  EXPECT_EQ(splitter.held_bytes(), 0u);
  EXPECT_EQ(splitter.push("</th").reasoning, "");
  EXPECT_EQ(splitter.held_bytes(), 4u);
}

TEST(ReasoningSplitter, AMegabyteInPiecesOfOneByteIsLinear) {
  for (const std::string_view unit : {"a", "<", "\n", "</think ", "<tool_call>\n\n\n"}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    ReasoningSplitter splitter(kInsideWithTools);
    std::size_t shown = 0;
    for (const char c : text) shown += splitter.push({&c, 1}).reasoning.size();
    EXPECT_LE(shown, text.size()) << unit;
  }
}

}  // namespace
}  // namespace tandem::text
