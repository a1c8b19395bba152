#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::text {
namespace {

TEST(Utf8, InvalidBytesBecomeOneReplacementForEachMaximalSubpart) {
  const std::string fffd(kReplacement);
  EXPECT_EQ(to_utf8("a\x80z"), "a" + fffd + "z");
  EXPECT_EQ(to_utf8("\xF0\x9F\x8C"), fffd);                    // unfinished
  EXPECT_EQ(to_utf8("\xF0\x9F" "a"), fffd + "a");              // given up at the first foreign byte
  EXPECT_EQ(to_utf8("\xC0\xAF"), fffd + fffd);                 // overlong: neither byte begins anything
  EXPECT_EQ(to_utf8("\xED\xA0\x80"), fffd + fffd + fffd);      // surrogate
  EXPECT_EQ(to_utf8("\xF4\x90\x80\x80"), fffd + fffd + fffd + fffd);  // above U+10FFFF
  EXPECT_EQ(to_utf8("\xE2\x82\xE2\x82\xAC"), fffd + "\xE2\x82\xAC");
}

TEST(Utf8, EveryCodePointSurvivesWritingAndReading) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_TRUE(is_utf8(text));
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::Character);
    ASSERT_EQ(step.bytes, text.size());
    ASSERT_EQ(step.code_point, c);
  }
}

TEST(Utf8Stream, OutputDoesNotDependOnWhereThePiecesEnd) {
  constexpr std::string_view kBytes[] = {"a", "\xC3", "\xA9", "\xF0", "\x9F", "\x8C", "\xB6", "\x80", "\xE2", "\xED", "\xA0", "\xF4", "\x90", "\xFF"};
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string bytes;
    for (unsigned n = random() % 30; n > 0; --n) bytes += kBytes[random() % std::size(kBytes)];
    std::string joined;
    Utf8Stream stream;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 4, bytes.size() - at);
      stream.push(std::string_view(bytes).substr(at, size), joined);
      ASSERT_TRUE(is_utf8(joined));
      ASSERT_LE(stream.held().size(), 3u);
      at += size;
    }
    if (!stream.held().empty()) joined += kReplacement;
    ASSERT_EQ(joined, to_utf8(bytes));
  }
}

TEST(Utf8Stream, HoldsNothingThatIsComplete) {
  Utf8Stream stream;
  std::string out;
  stream.push("ab\xC3", out);
  EXPECT_EQ(out, "ab");
  stream.push("\xA9", out);
  EXPECT_EQ(out, "ab\xC3\xA9");
  EXPECT_EQ(stream.held(), "");
}

TEST(Utf8Stream, BytesFromBeforeItComeOutOnlyInACharacterThatItFinishes) {
  {
    Utf8Stream stream;
    stream.begin_after("before \xF0\x9F");
    std::string out;
    stream.push("\x8C\xB6!", out);
    EXPECT_EQ(out, "\xF0\x9F\x8C\xB6!");
  }
  {
    Utf8Stream stream;
    stream.begin_after("before \xF0\x9F");
    std::string out;
    stream.push("no", out);
    EXPECT_EQ(out, "no");
  }
  {
    Utf8Stream stream;
    stream.begin_after("before \xF0\x9F");
    std::string out;
    stream.push("\x8C", out);
    stream.push("no", out);
    EXPECT_EQ(out, std::string(kReplacement) + "no");  // its own byte is not lost silently
  }
}

}  // namespace
}  // namespace tandem::text
