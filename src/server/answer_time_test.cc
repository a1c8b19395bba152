// What a token of an answer costs between the model and the socket must not grow with the answer (B184).
#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/output.h"
#include "server/chat_format.h"
#include "server/text_tools.h"

namespace tandem::server {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

constexpr int kTokens = 16'000, kPart = 1'000;
// A sanitizer makes a round ten times as long, and the ratio is the same there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kLeastRounds = 3;
#else
constexpr int kLeastRounds = 20;
#endif
using Parts = std::array<double, kTokens / kPart>;

// One streamed chat answer of kTokens tokens, with stop strings that never come and a tool on offer:
// `opening`, then `unit` again and again. The processor time of each thousand tokens.
Parts answer(const TextTools& text, bool inside_think, std::string_view opening, std::string_view unit) {
  std::string says(opening);
  while (says.size() < 16u * kTokens) says += unit;
  std::vector<TokenId> ids = text.encode(says);
  EXPECT_GE(ids.size(), static_cast<std::size_t>(kTokens));
  ids.resize(kTokens);
  auto output = engine::Output::make({.prompt = {1}, .stop = {"never comes", "nor this"}}, text.tokenizer());
  EXPECT_TRUE(output);
  ChatFormat format(
      {.id = "chatcmpl-1", .model = "m", .stream = true}, 1,
      {.inside_think = inside_think,
       .tools =
           boost::json::parse(R"([{"type":"function","function":{"name":"write","parameters":{"type":"object",
                         "properties":{"content":{"type":"string"}}}}}])")
               .as_array()},
      text);
  Parts parts{};
  std::string out;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const double start = thread_seconds();
    for (std::size_t i = part * kPart; i < (part + 1) * kPart; ++i) {
      engine::Delta delta;
      EXPECT_FALSE(output->push({.id = ids[i]}, false, delta));
      out.clear();  // the connection has sent it
      format.delta(0, std::move(delta), out);
    }
    parts[part] = thread_seconds() - start;
  }
  return parts;
}

TEST(AnswerTime, B184_TheLastThousandOf16000TokensTakesNoMoreThanATenthMoreThanTheFirst) {
  const auto text = TextTools::load(TANDEM_SOURCE_DIR "/models/tandem-tiny");
  ASSERT_TRUE(text) << text.error().message;
  struct Kind {
    const char* name;
    bool inside_think;
    const char* opening;
  };
  for (const Kind& kind :
       {Kind{"reasoning", true, ""}, Kind{"content", false, ""},
        Kind{"a call's argument", false, "<tool_call>\n<function=write>\n<parameter=content>\n"}}) {
    // The least of several times is the work itself: what else runs on the machine only ever adds to it. One
    // growing with the answer stays above the bound however often it is taken.
    double first = std::numeric_limits<double>::infinity(), last = first;
    for (int round = 0; round < 100 && (round < kLeastRounds || last > 1.1 * first); ++round) {
      const Parts parts =
          answer(*text, kind.inside_think, kind.opening, "so the thought goes on, a < b, and\n on. ");
      first = std::min(first, parts.front());
      last = std::min(last, parts.back());
    }
    EXPECT_LE(last, 1.1 * first) << kind.name << ", seconds";
  }
}

}  // namespace
}  // namespace tandem::server
