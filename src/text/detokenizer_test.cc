#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "text/tokenizer_fixture.h"

namespace tandem::text {
namespace {

class DetokenizerTest : public testing::Test {
 protected:
  const Tokenizer tokenizer_ = *Tokenizer::parse(fixture::tokenizer_json(), fixture::tokenizer_config_json());

  std::vector<TokenId> ids(std::string_view text) const { return tokenizer_.encode(text, SpecialTokens::Parse); }
};

TEST_F(DetokenizerTest, ACharacterComesOutWithItsLastByte) {
  Detokenizer detokenizer(tokenizer_, true);
  EXPECT_EQ(detokenizer.push(269), "");  // F0 9F in one token
  EXPECT_EQ(detokenizer.push(0x8C), "");
  EXPECT_EQ(detokenizer.held(), "\xF0\x9F\x8C");
  EXPECT_EQ(detokenizer.push(0xB6), "\U0001f336");
  EXPECT_EQ(detokenizer.push('a'), "a");
}

TEST_F(DetokenizerTest, BytesThatCanEndNoCharacterAreNotHeld) {
  Detokenizer detokenizer(tokenizer_, true);
  EXPECT_EQ(detokenizer.push(0x8C), "\uFFFD");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push('a'), "\uFFFDa");
  EXPECT_EQ(detokenizer.push(0xFF), "\uFFFD");
}

TEST_F(DetokenizerTest, LeadingSpacesStay) {
  Detokenizer detokenizer(tokenizer_, true);
  EXPECT_EQ(detokenizer.push(264), " world");
  EXPECT_EQ(tokenizer_.decode(std::vector<TokenId>{264}, true), " world");
}

// Proves: stream = whole, for valid text, cut characters, noise and skipped tokens alike.
TEST_F(DetokenizerTest, JoinedPiecesAreTheWholeDecoded) {
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> list;
    for (unsigned n = random() % 20; n > 0; --n) {
      switch (random() % 4) {
        case 0: list.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(tokenizer_.vocab_size() + 3))); break;
        case 1: list.push_back(static_cast<TokenId>(0x80 + random() % 0x80)); break;
        default: {
          const auto whole = ids(random() % 2 == 0 ? "\U0001f336" : "é中");
          list.insert(list.end(), whole.begin(), whole.end());
        }
      }
    }
    for (const bool skip : {false, true}) {
      Detokenizer detokenizer(tokenizer_, skip);
      std::string joined, bytes;
      for (const TokenId id : list) {
        const std::string piece = detokenizer.push(id);
        ASSERT_TRUE(is_utf8(piece)) << "seed " << seed;
        joined += piece;
        if (!skip || !tokenizer_.is_special(id)) bytes += tokenizer_.token_bytes(id);
      }
      ASSERT_EQ(joined, tokenizer_.decode(list, skip)) << "seed " << seed;
      // The rule for bytes, said another way: what is not held is shown.
      bytes.resize(bytes.size() - detokenizer.held().size());
      ASSERT_EQ(joined, to_utf8(bytes)) << "seed " << seed;
    }
  }
}

TEST_F(DetokenizerTest, EveryCutGivesTextWithoutAnUnfinishedCharacter) {
  const auto list = ids("hi \U0001f336\U0001f9c2 \u00e9");
  for (std::size_t count = 0; count <= list.size(); ++count) {
    const std::vector<TokenId> cut(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(tokenizer_.decode(cut, true).find("\uFFFD"), std::string::npos) << count;
  }
}

TEST_F(DetokenizerTest, APromptThatEndsInsideACharacterShowsOnlyThatCharacter) {
  const std::string pepper = "\U0001f336";
  for (std::size_t given = 1; given <= 3; ++given) {
    std::vector<TokenId> prompt = ids("hello world ");
    for (std::size_t i = 0; i < given; ++i) prompt.push_back(static_cast<unsigned char>(pepper[i]));
    Detokenizer finishes(tokenizer_, true);
    finishes.begin_after(prompt);
    std::string text;
    for (std::size_t i = given; i < pepper.size(); ++i) finishes.push(static_cast<unsigned char>(pepper[i]), text);
    finishes.push('!', text);
    EXPECT_EQ(text, pepper + "!") << given;

    Detokenizer leaves(tokenizer_, true);
    leaves.begin_after(prompt);
    EXPECT_EQ(leaves.push('x'), "x") << given;
  }
}

}  // namespace
}  // namespace tandem::text
