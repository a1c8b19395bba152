#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/common_fields.h"
#include "server/prompt_text.h"

namespace tandem::server {

struct CompletionRequest {
  CommonFields common;
  std::variant<std::string, std::vector<TokenId>> prompt;
  bool echo = false;         // the prompt stands before the text
  bool score_only = false;   // max_tokens 0 with echo: no token is generated for the client
};

// A body of /v1/completions. Error: 400 or 404 for the first thing that is wrong.
[[nodiscard]] tl::expected<CompletionRequest, ApiError> read_completion_request(const json::object& body,
                                                                                const Served& served);

}  // namespace tandem::server
