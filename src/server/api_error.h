#pragma once

#include <string>

#include "base/result.h"
#include "server/http_message.h"

namespace tandem::server {

// An error as OpenAI clients read it: {"error":{"message","type","param","code"}}.
struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param = {};  // the field to blame; empty: null
  std::string code = {};   // for programs; empty: null
};

// A field's value is wrong: 400.
[[nodiscard]] ApiError bad_field(std::string param, std::string message, std::string code = "invalid_value");

// The status follows from the kind, as base/result.h documents it. `Overloaded` becomes 503.
[[nodiscard]] ApiError to_api_error(const Error& error);

// The JSON object, for a body or a `data:` event. Messages are cut at 1,000 bytes.
[[nodiscard]] std::string error_json(const ApiError& error);

// Also sets Retry-After for 503.
[[nodiscard]] Response error_response(const ApiError& error);

}  // namespace tandem::server
