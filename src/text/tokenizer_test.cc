#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <thread>

#include "text/tokenizer_fixture.h"
#include "text/tokenizer_lines.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer small() {
  auto tokenizer = Tokenizer::parse(fixture::tokenizer_json(), fixture::tokenizer_config_json());
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return std::move(*tokenizer);
}

TEST(Tokenizer, MergesWithinPiecesOnly) {
  const Tokenizer tokenizer = small();
  EXPECT_THAT(tokenizer.encode("hello world", SpecialTokens::Parse), ElementsAre(259, 264));
  EXPECT_THAT(tokenizer.encode("", SpecialTokens::Parse), ElementsAre());
}

TEST(Tokenizer, AddedTokensOfBothFilesAreFoundVerbatim) {
  const Tokenizer tokenizer = small();
  const TokenId first = fixture::first_added_id();
  EXPECT_THAT(tokenizer.encode("<|im_start|>hello<think><tts_pad>", SpecialTokens::Parse), ElementsAre(first + 1, 259, first + 5, first + 7));
  EXPECT_EQ(tokenizer.vocab_size(), first + 8);
  EXPECT_EQ(tokenizer.find("<tts_pad>"), first + 7);
  EXPECT_EQ(tokenizer.find("hello"), 259);
  EXPECT_EQ(tokenizer.find("no such token"), std::nullopt);
}

TEST(Tokenizer, AsTextSpellsSpecialTokensAndKeepsTheOtherAddedOnes) {
  const Tokenizer tokenizer = small();
  const TokenId first = fixture::first_added_id();
  const auto ids = tokenizer.encode("<|im_end|><think>", SpecialTokens::AsText);
  EXPECT_EQ(ids.size(), 11u);
  EXPECT_EQ(ids.back(), first + 5);
  EXPECT_EQ(tokenizer.decode(ids, true), "<|im_end|><think>");
}

TEST(Tokenizer, NormalizesBetweenAddedTokensOnly) {
  const Tokenizer tokenizer = small();
  EXPECT_THAT(tokenizer.encode("e\u0301", SpecialTokens::Parse), ElementsAre(270));
  EXPECT_EQ(tokenizer.encode("<think>\u0301", SpecialTokens::Parse).size(), 3u);
}

TEST(Tokenizer, DecodingSkipsSpecialTokensOnRequestAndNeverTheOthers) {
  const Tokenizer tokenizer = small();
  const auto ids = tokenizer.encode("<|im_start|><think>hello</think><|im_end|>", SpecialTokens::Parse);
  EXPECT_EQ(tokenizer.decode(ids, true), "<think>hello</think>");
  EXPECT_EQ(tokenizer.decode(ids, false), "<|im_start|><think>hello</think><|im_end|>");
}

TEST(Tokenizer, IdsWithoutATokenAreNothing) {
  const Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.vocab_size()), "");
  EXPECT_FALSE(tokenizer.has_token(tokenizer.vocab_size()));
  const std::vector<TokenId> ids = {259, tokenizer.vocab_size() + 5, 264};
  EXPECT_EQ(tokenizer.decode(ids, false), "hello world");
}

TEST(Tokenizer, NamesItsEndPadAndBeginTokens) {
  const Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.eos(), tokenizer.find("<|im_end|>"));
  EXPECT_EQ(tokenizer.pad(), tokenizer.find("<|endoftext|>"));
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.eos()));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.find("<think>")));
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacters) {
  const Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.encode("a\xFF\xF0\x9Fz", SpecialTokens::Parse), tokenizer.encode("a\uFFFD\uFFFDz", SpecialTokens::Parse));
}

TEST(Tokenizer, DecodingGivesBackTheNormalizedText) {
  const Tokenizer tokenizer = small();
  constexpr const char* kParts[] = {"hello", " world", " ", "\n", "\r\n", "<|im_end|>", "<think>", "é", "\u0301", "中", "\U0001f336", "1", "'s", "a", "...", "<"};
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (unsigned n = random() % 12; n > 0; --n) text += kParts[random() % std::size(kParts)];
    const std::string once = tokenizer.decode(tokenizer.encode(text, SpecialTokens::Parse), false);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(once, SpecialTokens::Parse), false), once) << "seed " << seed;
    if (text.find("\u0301") == std::string::npos) {
      ASSERT_EQ(once, text) << "seed " << seed;
    }
  }
}

TEST(Tokenizer, AnswersManyThreadsAtOnce) {
  const Tokenizer tokenizer = small();
  std::string text;
  for (int i = 0; i < 500; ++i) text += "hello world " + std::to_string(i) + (i % 3 == 0 ? "<think>é\n" : " aaaa ");
  const auto expected = tokenizer.encode(text, SpecialTokens::Parse);
  std::vector<int> equal(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& mine : equal) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const auto ids = tokenizer.encode(text, SpecialTokens::Parse);
          mine += ids == expected && tokenizer.decode(ids, false) == text ? 1 : 0;
        }
      });
    }
  }
  EXPECT_THAT(equal, testing::Each(20));
}

TEST(Tokenizer, LongRunsOfAnyKindKeepAllTheirBytes) {
  const Tokenizer tokenizer = small();
  for (const std::string_view unit : {"a", "A", " ", "\n", " \n", "\r\n", "=", "7", "中", "ab", "<", "<|", "'s"}) {
    std::string text;
    while (text.size() < 200000) text += unit;
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::Parse), false), text) << unit;
  }
}

TEST(TokenizeLines, AnswersTextsAndIds) {
  const Tokenizer tokenizer = small();
  std::istringstream in(
      "{\"text\": \"hello\"}\n\n{\"ids\": [259, 264]}\n{\"text\":\"<|im_end|>\",\"special_tokens\":\"text\",\"skip_special_tokens\":true}\n");
  std::ostringstream out;
  ASSERT_TRUE(tokenize_lines(tokenizer, in, out));
  EXPECT_EQ(out.str(),
            "{\"ids\":[259],\"text\":\"hello\"}\n{\"text\":\"hello world\"}\n"
            "{\"ids\":[60,124,105,109,95,101,110,100,124,62],\"text\":\"<|im_end|>\"}\n");
}

TEST(TokenizeLines, NamesTheLineThatIsWrong) {
  const Tokenizer tokenizer = small();
  for (const char* bad : {"x", "[]", "{}", "{\"text\":1}", "{\"ids\":[-1]}", "{\"ids\":[1.5]}", "{\"text\":\"a\",\"special_tokens\":\"all\"}"}) {
    std::istringstream in("{\"text\": \"a\"}\n" + std::string(bad) + "\n");
    std::ostringstream out;
    const auto done = tokenize_lines(tokenizer, in, out);
    ASSERT_FALSE(done) << bad;
    EXPECT_THAT(done.error().message, HasSubstr("line 2")) << bad;
  }
}

}  // namespace
}  // namespace tandem::text
