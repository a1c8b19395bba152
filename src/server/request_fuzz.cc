// Reads an input as the body of /v1/chat/completions, /v1/completions and /tokenize. Promises: a refusal is a 4xx
// with a reason that is UTF-8; what is taken is within the limits and makes a prompt or a refusal.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/http_message.h"
#include "server/testing/fake_text.h"
#include "tests/fuzz/driver.h"
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const testing::FakeText text;
  static const ModelCard card{.names = {"m"}};
  static const Served served{.card = card, .vocab = 300, .max_context = 1000, .max_choices = 16};
  const auto body = parse_object({reinterpret_cast<const char*>(data), size});
  if (!body) {
    check(body.error());
    return 0;
  }
  if (const auto chat = read_chat_request(*body, served, text)) {
    check(chat->common, served);
    if (const auto prompt = render_prompt(text, chat->conversation); !prompt) check(prompt.error());
  } else {
    check(chat.error());
  }
  if (const auto completion = read_completion_request(*body, served)) check(completion->common, served);
  else check(completion.error());
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"model":"m","messages":[{"role":"system","content":"A"},{"role":"developer","content":[{"type":"text","text":"B"}]},{"role":"user","content":"hi"}],"max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":3,"min_p":0.1,"seed":42,"n":2,"stop":["a","b"],"stream":true,"stream_options":{"include_usage":true}})",
      R"({"messages":[{"role":"user","content":"w"},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{\"city\":\"Oslo\",\"n\":[1,2.5,null]}"}}]},{"role":"tool","tool_call_id":"c1","content":"rain"}],"tools":[{"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object"}}}],"tool_choice":"auto","chat_template_kwargs":{"enable_thinking":true},"logprobs":true,"top_logprobs":5})",
      R"({"messages":[{"role":"user","content":"1+1=?"},{"role":"assistant","content":"<think>It is "}],"continue_final_message":true,"add_generation_prompt":false,"logit_bias":{"5":-100,"7":2.5},"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.2,"min_tokens":2,"ignore_eos":true,"stop_token_ids":[257]})",
      R"({"prompt":"Once upon a time","echo":true,"logprobs":3,"max_tokens":0,"return_tokens_as_token_ids":true,"skip_special_tokens":false,"user":"u","metadata":{"k":"v"}})",
      R"({"prompt":[1,2,3,256],"max_completion_tokens":null,"max_tokens":16,"include_stop_str_in_output":true,"stop":"x","suffix":null,"best_of":1})"};
}
