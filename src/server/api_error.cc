#include "server/api_error.h"

#include "base/json_writer.h"

namespace tandem::server {

ApiError bad_field(std::string param, std::string message, std::string code) {
  return {400, std::move(message), "invalid_request_error", std::move(param), std::move(code)};
}

ApiError to_api_error(const Error& error) {
  switch (error.kind) {
    case ErrorKind::Invalid: return bad_field(error.field, error.message);
    case ErrorKind::Unsupported: return bad_field(error.field, error.message, "unsupported_value");
    case ErrorKind::Capacity: return bad_field(error.field, error.message, "context_length_exceeded");
    case ErrorKind::NotFound:
      return {404, error.message, "invalid_request_error", error.field, "not_found"};
    case ErrorKind::Overloaded:
      return {503, error.message, "server_error", error.field, "overloaded"};
    case ErrorKind::Poisoned:
      return {503, error.message, "server_error", error.field, "replica_failed"};
    case ErrorKind::Cancelled:
      return {503, error.message, "server_error", error.field, "cancelled"};
    default:
      return {500, error.message, "server_error", error.field, std::string(name(error.kind))};
  }
}

std::string error_json(const ApiError& error) {
  const auto text_or_null = [](JsonWriter& json, const std::string& text) {
    text.empty() ? json.null() : json.string(shown(text, 120));
  };
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.member("message", shown(error.message, 1000));
  json.member("type", error.type);
  json.key("param");
  text_or_null(json, error.param);
  json.key("code");
  text_or_null(json, error.code);
  json.end_object().end_object();
  return json.take();
}

Response error_response(const ApiError& error) {
  Response response{.status = error.status, .body = error_json(error)};
  if (error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace tandem::server
