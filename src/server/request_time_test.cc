#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>

#include "server/chat_request.h"
#include "server/http_message.h"
#include "server/testing/long_chat.h"
#include "server/text_tools.h"

namespace tandem::server {
namespace {

double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Such a request may take 2 ms (request_bench shows what it takes); the bound here leaves ten times that for slow machines,
// and ten times more again where code is not optimised or is watched by a sanitizer.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMostMilliseconds = 20;
#else
constexpr double kMostMilliseconds = 200;
#endif

TEST(RequestTime, AChatOf4096TokensIsParsedRenderedAndTokenizedWithinItsBound) {
  auto text = TextTools::load(TANDEM_SOURCE_DIR "/models/tandem-tiny");
  ASSERT_TRUE(text) << text.error().message;
  const ModelCard card{.names = {"m"}};
  const Served served{.card = card, .vocab = 4096, .max_context = 32768, .max_choices = 1};
  std::size_t tokens = 0;
  const auto run = [&](const std::string& body) {
    const auto object = parse_object(body);
    ASSERT_TRUE(object);
    const auto chat = read_chat_request(*object, served, *text);
    ASSERT_TRUE(chat) << chat.error().message;
    const auto prompt = render_prompt(*text, chat->conversation);
    ASSERT_TRUE(prompt) << prompt.error().message;
    tokens = text->encode(prompt->text).size();
  };
  std::string body;
  for (std::size_t bytes = 4096; tokens < 4096; bytes += 1024) run(body = testing::long_chat(bytes));
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = thread_milliseconds();
    run(body);
    best = std::min(best, thread_milliseconds() - start);
  }
  EXPECT_LT(best, kMostMilliseconds) << tokens << " tokens, " << body.size() << " bytes";
}

}  // namespace
}  // namespace tandem::server
