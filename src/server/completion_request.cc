#include "server/completion_request.h"

#include <fmt/format.h>

#include <array>

namespace tandem::server {
namespace {

constexpr std::array<OnlyDefault, 4> kOnlyDefault = {{
    {"suffix", "\"\"", ""},
    {"messages", "null", "/v1/chat/completions takes messages."},
    {"tools", "[]", "/v1/chat/completions takes tools."},
    {"top_logprobs", "null", "Here logprobs is the number of alternatives."},
}};

void read_ids(Fields& fields, const json::array& ids, std::int32_t vocab, std::vector<TokenId>& out) {
  out.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_int64() || ids[i].get_int64() < 0 || ids[i].get_int64() >= vocab) {
      return fields.fail("prompt", fmt::format("prompt[{}] must be a token id from 0 to {}, got {}.", i, vocab - 1,
                                               shown_value(ids[i])));
    }
    out.push_back(static_cast<TokenId>(ids[i].get_int64()));
  }
}

// A string, a list of ids, or a list of exactly one of either.
void read_prompt(Fields& fields, std::int32_t vocab, CompletionRequest& out) {
  const json::value* prompt = fields.any("prompt");
  if (!fields.ok()) return;
  if (prompt != nullptr && prompt->is_array()) {
    const json::array& list = prompt->get_array();
    const bool of_prompts = !list.empty() && (list[0].is_string() || list[0].is_array());
    if (of_prompts && list.size() > 1) {
      return fields.fail("prompt", fmt::format("prompt holds {} prompts; one request takes one.", list.size()), "unsupported_value");
    }
    if (of_prompts) prompt = &list[0];
  }
  if (prompt != nullptr && prompt->is_string() && !prompt->get_string().empty()) {
    out.prompt = std::string(prompt->get_string());
    return;
  }
  if (prompt != nullptr && prompt->is_array() && !prompt->get_array().empty()) {
    return read_ids(fields, prompt->get_array(), vocab, out.prompt.emplace<std::vector<TokenId>>());
  }
  fields.fail("prompt", fmt::format("prompt must be a string or a list of token ids, and not empty, got {}.",
                                    prompt == nullptr ? "none" : shown_value(*prompt)));
}

}  // namespace

tl::expected<CompletionRequest, ApiError> read_completion_request(const json::object& body, const Served& served) {
  Fields fields(body);
  CompletionRequest out;
  engine::Request& request = out.common.request;
  read_prompt(fields, served.vocab, out);
  read_common(fields, served, out.common, /*least_max_tokens=*/0);
  read_response_format(fields);
  out.echo = fields.boolean("echo").value_or(false);
  (void)fields.boolean("add_special_tokens");  // no model of this family has tokens to add
  request.logprobs = static_cast<std::int32_t>(fields.integer("logprobs", 0, ops::kMaxTopLogprobs).value_or(-1));
  if (out.echo) request.prompt_logprobs = request.logprobs;
  if (request.max_tokens == 0) {
    if (!out.echo) fields.fail("max_tokens", "max_tokens = 0 works only with echo: true, to score a prompt.");
    // The engine always samples once; that token is not the client's.
    out.score_only = true;
    request.max_tokens = 1;
    request.sampling.min_tokens = 0;
  }
  refuse_others(fields, kOnlyDefault);
  if (fields.error()) return tl::unexpected(*fields.error());
  return out;
}

}  // namespace tandem::server
