#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem::text {
namespace {

struct Ended {
  std::string text;
  std::string stop;  // empty: none
  friend bool operator==(const Ended&, const Ended&) = default;
};

// The rule, word for word: the first place where a stop string is complete, the longest of those.
Ended end_plainly(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& stop : stops) {
      const bool ends = stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0;
      if (ends && (longest == nullptr || stop.size() > longest->size())) longest = &stop;
    }
    if (longest != nullptr) return {text.substr(0, include ? end : end - longest->size()), *longest};
  }
  return {text, ""};
}

Ended end_in_pieces(const std::string& text, const std::vector<std::string>& stops, bool include, const std::vector<std::size_t>& cuts) {
  StopMatcher matcher = *StopMatcher::make(stops, include);
  Ended ended;
  std::size_t at = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t end = i < cuts.size() ? cuts[i] : text.size();
    matcher.push(std::string_view(text).substr(at, end - at), ended.text);
    at = end;
  }
  if (matcher.stopped()) {
    ended.stop = matcher.stopped_by();
  } else {
    matcher.flush(ended.text);
  }
  return ended;
}

std::string word(std::mt19937& random, unsigned most) {
  std::string text;
  for (unsigned n = 1 + random() % most; n > 0; --n) text += static_cast<char>('a' + random() % 2);
  return text;
}

TEST(StopMatcher, EqualsThePlainRuleForRandomStringsAndPieces) {
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> stops;
    for (unsigned n = 1 + random() % 4; n > 0; --n) stops.push_back(word(random, 6));
    const std::string text = word(random, 24);
    std::vector<std::size_t> cuts;
    for (unsigned n = random() % 6; n > 0; --n) cuts.push_back(random() % (text.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    for (const bool include : {false, true}) {
      ASSERT_EQ(end_in_pieces(text, stops, include, cuts), end_plainly(text, stops, include)) << "seed " << seed << " text " << text;
    }
  }
}

// Proves: only the beginning of a stop string is ever held, and all of it.
TEST(StopMatcher, HoldsTheLongestEndOfTheTextThatBeginsAStopString) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const std::vector<std::string> stops = {word(random, 8), word(random, 8)};
    StopMatcher matcher = *StopMatcher::make(stops, false);
    std::string text, shown;
    for (int i = 0; i < 30; ++i) {
      text += static_cast<char>('a' + random() % 2);
      if (matcher.push(std::string_view(text).substr(text.size() - 1), shown)) break;
      std::size_t longest = 0;
      for (const std::string& stop : stops) {
        for (std::size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
          if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = std::max(longest, n);
        }
      }
      ASSERT_EQ(matcher.held_bytes(), longest) << "seed " << seed;
      ASSERT_EQ(shown, text.substr(0, text.size() - longest)) << "seed " << seed;
    }
  }
}

TEST(StopMatcher, NothingOfAStopStringThatSpansPiecesIsShown) {
  const std::string text = "one, two, three, four, five, six, seven";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(end_in_pieces(text, {"five, six"}, false, {cut}), (Ended{"one, two, three, four, ", "five, six"}));
    EXPECT_EQ(end_in_pieces(text, {"five, six"}, true, {cut}), (Ended{"one, two, three, four, five, six", "five, six"}));
    EXPECT_EQ(end_in_pieces(text, {"e, s"}, false, {cut}), (Ended{"one, two, three, four, fiv", "e, s"}));
  }
}

TEST(StopMatcher, WhatCannotBeginAStopStringIsNotDelayed) {
  StopMatcher matcher = *StopMatcher::make({"zzzzzzzzzz"}, false);
  std::string shown;
  matcher.push("</think>\n\nabc", shown);
  EXPECT_EQ(shown, "</think>\n\nabc");
}

TEST(StopMatcher, HeldTextIsDeliveredWhenTheTextEnds) {
  EXPECT_EQ(end_in_pieces("alpha beta gamma delta", {"delta force"}, false, {20}), (Ended{"alpha beta gamma delta", ""}));
}

TEST(StopMatcher, GivesNothingAfterAStop) {
  StopMatcher matcher = *StopMatcher::make({"x"}, false);
  std::string shown;
  EXPECT_TRUE(matcher.push("abxcd", shown));
  EXPECT_TRUE(matcher.push("more", shown));
  EXPECT_EQ(shown, "ab");
  EXPECT_EQ(matcher.held_bytes(), 0u);
}

TEST(StopMatcher, WithoutStringsEverythingPasses) {
  StopMatcher matcher;
  std::string shown;
  EXPECT_FALSE(matcher.push("abc", shown));
  EXPECT_EQ(shown, "abc");
  EXPECT_TRUE(StopMatcher::make({}, false));
}

TEST(StopMatcher, EmptyTooManyAndTooLongStringsAreRefused) {
  const std::vector<std::vector<std::string>> bad = {
      {""}, {"", "END"}, std::vector<std::string>(10000, "x"), {std::string(StopMatcher::kLongestBytes + 1, 'x')}};
  for (const std::vector<std::string>& stops : bad) {
    const auto matcher = StopMatcher::make(stops, false);
    ASSERT_FALSE(matcher);
    EXPECT_EQ(matcher.error().kind, ErrorKind::Invalid);
    EXPECT_EQ(matcher.error().field, "stop");
  }
}

TEST(StopMatcher, AMegabyteInPiecesOfOneByteIsLinear) {
  StopMatcher matcher = *StopMatcher::make({std::string(4000, 'a') + "b", std::string(100, 'a') + "c"}, false);
  const std::string text(1 << 20, 'a');
  std::string shown;
  for (const char c : text) matcher.push({&c, 1}, shown);
  EXPECT_EQ(shown.size() + matcher.held_bytes(), text.size());
  EXPECT_EQ(matcher.held_bytes(), 4000u);
}

}  // namespace
}  // namespace tandem::text
