// Reads an input as the body of /v1/chat/completions and /v1/completions. Promises: a refusal is a 4xx with a reason
// that is UTF-8; what is taken is within the limits and makes, with the bundled model's chat template and with that of
// the tests, a prompt or a refusal.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/http_message.h"
#include "server/testing/fake_text.h"
#include "server/text_tools.h"
#include "text/jinja/unicode.h"

namespace {

using namespace tandem::server;

void check(const ApiError& error) {
  if (error.status < 400 || error.status > 499 || error.message.empty()) std::abort();
  if (!tandem::text::jinja::is_valid_utf8(error.message) || !tandem::text::jinja::is_valid_utf8(error.param)) std::abort();
}

void check(const CommonFields& common, const Served& served) {
  if (common.choices < 1 || common.choices > served.max_choices) std::abort();
  const auto& sampling = common.request.sampling;
  if (!(sampling.temperature >= 0) || !(sampling.top_p > 0 && sampling.top_p <= 1) || sampling.top_k < 0) std::abort();
}

void render(const PromptText& tools, const tandem::text::Conversation& conversation) {
  const auto prompt = render_prompt(tools, conversation);
  if (!prompt) return check(prompt.error());
  if (!tandem::text::jinja::is_valid_utf8(prompt->text)) std::abort();
  if (!prompt->text.empty() && tools.encode(prompt->text).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const testing::FakeText text;
  static const TextTools bundled = *TextTools::load(TANDEM_SOURCE_DIR "/models/tandem-tiny");
  static const ModelCard card{.names = {"m"}};
  static const Served served{.card = card, .vocab = 300, .max_context = 1000, .max_choices = 16};
  const auto body = parse_object({reinterpret_cast<const char*>(data), size});
  if (!body) {
    check(body.error());
    return 0;
  }
  if (const auto chat = read_chat_request(*body, served, text)) {
    check(chat->common, served);
    render(text, chat->conversation);
    render(bundled, chat->conversation);
  } else {
    check(chat.error());
  }
  if (const auto completion = read_completion_request(*body, served)) check(completion->common, served);
  else check(completion.error());
  return 0;
}
