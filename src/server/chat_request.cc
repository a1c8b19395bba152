#include "server/chat_request.h"

#include <fmt/format.h>

#include <array>

namespace tandem::server {
namespace {

constexpr std::array<OnlyDefault, 13> kOnlyDefault = {{
    {"parallel_tool_calls", "true", ""},
    {"functions", "[]", "tools replaces it."},
    {"function_call", "\"none\"", "tool_choice replaces it."},
    {"modalities", "[\"text\"]", ""},
    {"audio", "null", ""},
    {"reasoning_effort", "null", "chat_template_kwargs has enable_thinking."},
    {"enable_thinking", "null", "Put it into chat_template_kwargs."},
    {"verbosity", "\"medium\"", ""},
    {"include_reasoning", "true", ""},
    {"echo", "false", "/v1/completions has echo."},
    {"chat_template", "null", "The server uses the model's own template."},
    {"documents", "[]", ""},
    {"add_special_tokens", "false", "The chat template writes the special tokens."},
}};

}  // namespace

tl::expected<ChatRequest, ApiError> read_chat_request(const json::object& body, const Served& served,
                                                      const PromptText& text) {
  Fields fields(body);
  ChatRequest out;
  read_conversation(fields, text, out.conversation);
  read_common(fields, served, out.common);
  read_response_format(fields);

  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, ops::kMaxTopLogprobs);
  if (top.value_or(0) > 0 && !logprobs) {
    fields.fail("top_logprobs", fmt::format("top_logprobs = {} works only with logprobs: true.", *top));
  }
  out.common.request.logprobs = logprobs ? static_cast<std::int32_t>(top.value_or(0)) : -1;

  refuse_others(fields, kOnlyDefault);
  if (fields.error()) return tl::unexpected(*fields.error());
  return out;
}

}  // namespace tandem::server
