#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::text {
namespace {

TEST(AddedTokens, TheLeftmostWinsThenTheLongest) {
  AddedTokens tokens;
  ASSERT_TRUE(tokens.add({1, "<a>", false}));
  ASSERT_TRUE(tokens.add({2, "<a><b>", false}));
  ASSERT_TRUE(tokens.add({3, "a><b>", true}));
  const auto match = tokens.find_in("x<a><b>", 0);
  EXPECT_EQ(match.begin, 1u);
  EXPECT_EQ(match.token->id, 2);
  EXPECT_EQ(tokens.find_in("x<a><c>", 0).token->id, 1);
  EXPECT_EQ(tokens.find_in("x<a><b>", 2).token->id, 3);
  EXPECT_EQ(tokens.find_in("x<a", 0).token, nullptr);
}

TEST(AddedTokens, EqualsAPlainSearchOnRandomTexts) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto word = [&](unsigned most) {
      std::string text;
      for (unsigned n = 1 + random() % most; n > 0; --n) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    AddedTokens tokens;
    std::vector<std::string> contents;
    for (int i = 0; i < 5; ++i) {
      const std::string content = word(5);
      if (tokens.find(content) != nullptr) continue;
      ASSERT_TRUE(tokens.add({static_cast<TokenId>(contents.size()), content, false}));
      contents.push_back(content);
    }
    const std::string text = word(20);
    std::size_t begin = std::string::npos, size = 0;
    for (std::size_t at = 0; at < text.size() && begin == std::string::npos; ++at) {
      for (const std::string& content : contents) {
        if (text.compare(at, content.size(), content) == 0 && content.size() > size) begin = at, size = content.size();
      }
    }
    const auto match = tokens.find_in(text, 0);
    ASSERT_EQ(match.begin, begin) << "seed " << seed;
    if (match.token != nullptr) {
      ASSERT_EQ(match.token->content.size(), size) << "seed " << seed;
    }
  }
}

TEST(AddedTokens, TheSameTwiceIsOneAndContradictionsAreRefused) {
  AddedTokens tokens;
  ASSERT_TRUE(tokens.add({7, "<x>", true}));
  EXPECT_TRUE(tokens.add({7, "<x>", true}));
  EXPECT_EQ(tokens.all().size(), 1u);
  EXPECT_EQ(tokens.add({7, "<y>", true}).error().kind, ErrorKind::Corrupt);
  EXPECT_EQ(tokens.add({7, "<x>", false}).error().kind, ErrorKind::Corrupt);
  EXPECT_EQ(tokens.add({8, "<x>", true}).error().kind, ErrorKind::Corrupt);
  EXPECT_EQ(tokens.add({9, "", true}).error().kind, ErrorKind::Corrupt);
  EXPECT_EQ(tokens.end_id(), 8);
}

}  // namespace
}  // namespace tandem::text
