#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace tandem::text {
namespace {

using testing::ElementsAre;

std::vector<std::string> split(std::string_view text, SplitRule rule = SplitRule::Qwen3_5) {
  std::vector<std::string> pieces;
  Splitter splitter(rule, text);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) pieces.emplace_back(piece);
  return pieces;
}

TEST(Splitter, WordsTakeOneCharacterBeforeThem) {
  EXPECT_THAT(split("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(split("(a\tb.c"), ElementsAre("(a", "\tb", ".c"));
  EXPECT_THAT(split("\na"), ElementsAre("\n", "a"));
  EXPECT_THAT(split("1a"), ElementsAre("1", "a"));
}

TEST(Splitter, DigitsStandAlone) { EXPECT_THAT(split("x 12\u0663"), ElementsAre("x", " ", "1", "2", "\u0663")); }

TEST(Splitter, ContractionsInAnyCase) {
  EXPECT_THAT(split("it's I'LL we'Ve"), ElementsAre("it", "'s", " I", "'LL", " we", "'Ve"));
  EXPECT_THAT(split("'\u017ft"), ElementsAre("'\u017f", "t"));
  EXPECT_THAT(split("'rx 'x"), ElementsAre("'rx", " '", "x"));
  EXPECT_THAT(split("'"), ElementsAre("'"));
  EXPECT_THAT(split("'r"), ElementsAre("'r"));
}

TEST(Splitter, PunctuationTakesOneSpaceBeforeAndLineBreaksAfter) {
  EXPECT_THAT(split("a ...\r\n\nb"), ElementsAre("a", " ...\r\n\n", "b"));
  EXPECT_THAT(split("\t..."), ElementsAre("\t", "..."));
}

TEST(Splitter, WhiteSpaceEndsAtItsLastLineBreakOrBeforeItsLastCharacter) {
  EXPECT_THAT(split("a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(split("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(split("a  1"), ElementsAre("a", " ", " ", "1"));
  EXPECT_THAT(split("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(split("a\u3000\u3000b"), ElementsAre("a", "\u3000", "\u3000" "b"));
}

TEST(Splitter, MarksAreLettersForQwen3_5AndPunctuationForQwen2) {
  EXPECT_THAT(split("\u0301a\u0301 \u0301"), ElementsAre("\u0301a\u0301", " \u0301"));
  EXPECT_THAT(split("a\u0301b x\u0301!", SplitRule::Qwen2), ElementsAre("a", "\u0301b", " x", "\u0301!"));
}

TEST(Splitter, PiecesAreTheText) {
  constexpr const char* kParts[] = {"a", "B", " ", "  ", "\n", "\r\n", "\t", "1", ".", "'", "'s", "'re", "\u0301", "\u3000", "\u4e2d", "\u0661", "\U0001f600"};
  for (const SplitRule rule : {SplitRule::Qwen2, SplitRule::Qwen3_5}) {
    for (unsigned seed = 0; seed < 5000; ++seed) {
      std::mt19937 random(seed);
      std::string text;
      for (unsigned n = random() % 20; n > 0; --n) text += kParts[random() % std::size(kParts)];
      std::string joined;
      for (const std::string& piece : split(text, rule)) {
        ASSERT_TRUE(is_utf8(piece));
        joined += piece;
      }
      ASSERT_EQ(joined, text) << "seed " << seed;
    }
  }
}

TEST(SplitRule, IsKnownByItsExactPattern) {
  for (const SplitRule rule : {SplitRule::Qwen2, SplitRule::Qwen3_5}) EXPECT_EQ(split_rule_of(pattern_of(rule)), rule);
  EXPECT_EQ(split_rule_of(std::string(pattern_of(SplitRule::Qwen2)) + "?"), std::nullopt);
}

}  // namespace
}  // namespace tandem::text
