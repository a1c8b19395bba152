#include "server/format_parts.h"

#include <algorithm>

namespace tandem::server {

void write_head(JsonWriter& json, const AnswerHead& head, std::string_view object) {
  json.begin_object().member("id", head.id).member("object", object).member("created", head.created);
  json.member("model", head.model);
}

void write_usage(JsonWriter& json, const engine::Usage& usage) {
  json.key("usage").begin_object();
  json.member("prompt_tokens", usage.prompt_tokens);
  json.member("completion_tokens", usage.completion_tokens);
  json.member("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.end_object();
}

void append_event(std::string& out, std::string_view data) {
  out += "data: ";
  out += data;
  out += "\n\n";
}

void append_done(std::string& out) { out += "data: [DONE]\n\n"; }

void add_usage(engine::Usage& total, const engine::Usage& of_choice) {
  total.prompt_tokens = of_choice.prompt_tokens;
  total.completion_tokens += of_choice.completion_tokens;
}

std::string stop_reason_json(const engine::Finish& finish, const AnswerHead& head) {
  JsonWriter json;
  const auto& own = head.stop_token_ids;
  if (finish.stop_text) {
    json.string(*finish.stop_text);
  } else if (finish.stop_token && std::find(own.begin(), own.end(), *finish.stop_token) != own.end()) {
    json.number(*finish.stop_token);
  } else {
    json.null();
  }
  return json.take();
}

}  // namespace tandem::server
