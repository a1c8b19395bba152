#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/json_writer.h"
#include "base/log.h"
#include "base/version.h"
#include "server/chat_format.h"
#include "server/chat_request.h"
#include "server/completion_format.h"
#include "server/completion_request.h"
#include "server/generation.h"
#include "server/ids.h"
#include "server/logprob_json.h"
#include "server/page.h"

namespace tandem::server {
namespace {

const SteadyClock kClock;

Answer whole(Response response) { return {.response = std::move(response), .stream = nullptr}; }
Answer whole(const ApiError& error) { return whole(error_response(error)); }

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A page of another site can make a browser send text/plain here, but not JSON without asking first.
std::optional<ApiError> refuse_content_type(const Request& request) {
  std::string_view type = request.content_type;
  type = type.substr(0, type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  const auto same = [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a + 32 == b); };
  const std::string_view wanted = "application/json";
  if (type.empty() || std::equal(type.begin(), type.end(), wanted.begin(), wanted.end(), same)) return std::nullopt;
  return ApiError{415, fmt::format("Content-Type is {}; send application/json.", shown(type, 60)),
                  "invalid_request_error", "", "unsupported_media_type"};
}

tl::expected<json::object, ApiError> read_body(const Request& request) {
  if (auto refusal = refuse_content_type(request)) return tl::unexpected(std::move(*refusal));
  return parse_object(request.body);
}

void write_model(JsonWriter& json, const ModelCard& card, const std::string& name, std::int32_t max_context) {
  json.begin_object().member("id", name).member("object", "model").member("created", card.created);
  json.member("owned_by", "tandem");
  json.key("root");
  card.root.empty() ? json.null() : json.string(card.root);
  json.member("max_model_len", max_context).end_object();
}

}  // namespace

Api::Api(const ServerOptions& options, engine::Engine& engine, const PromptText& text, const ModelCard& card,
         std::shared_ptr<Metrics> metrics)
    : options_(options), engine_(engine), text_(text), card_(card), metrics_(std::move(metrics)) {
  router_.add("GET", "/", [](const Request&) { return whole(chat_page()); });
  router_.add("GET", "/health", [this](const Request& r) { return health(r); });
  router_.add("GET", "/metrics", [this](const Request&) {
    return whole(Response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = metrics_->text(engine_.load(), engine_.state())});
  });
  router_.add("GET", "/version", [this](const Request&) {
    JsonWriter json;
    json.begin_object().member("version", version()).end_object();
    return whole(Response{.body = json.take()});
  });
  router_.add("GET", "/v1/models", [this](const Request& r) { return list_models(r); });
  router_.add("GET", "/v1/models/", [this](const Request& r) { return one_model(r); });
  router_.add("POST", "/v1/chat/completions", [this](const Request& r) { return chat(r); });
  router_.add("POST", "/v1/completions", [this](const Request& r) { return completion(r); });
  router_.add("POST", "/tokenize", [this](const Request& r) { return tokenize(r); });
  router_.add("POST", "/detokenize", [this](const Request& r) { return detokenize(r); });
}

Answer Api::handle(const Request& request) {
  const Router::Found found = router_.find(request);
  Answer answer;
  try {
    answer = found.handler != nullptr ? (*found.handler)(request) : whole(found.refusal);
  } catch (const std::exception& error) {  // out of memory, a library's; one request's problem
    log_error("[http] {}: {}", found.route, error.what());
    answer = whole({500, "The request could not be handled.", "server_error", "", "internal"});
  }
  // A streamed answer's own end is counted by vllm:request_success_total.
  metrics_->http_answer(found.route, answer.stream ? 200 : answer.response.status);
  return answer;
}

Served Api::served() const {
  return {.card = card_, .vocab = engine_.vocab(), .max_context = engine_.max_context(), .max_choices = options_.max_choices};
}

std::optional<Response> Api::refuse_new_work() const {
  const engine::State state = engine_.state();
  if (state == engine::State::Failed) {
    const auto failure = engine_.failure();
    return error_response(to_api_error({ErrorKind::Poisoned, "The engine has failed: " + (failure ? failure->message : "unknown reason")}));
  }
  if (draining_ || state != engine::State::Ready) {
    return error_response({503, "The server is shutting down and takes no new requests.", "server_error", "", "draining"});
  }
  return std::nullopt;
}

Answer Api::health(const Request&) const {
  const engine::State state = engine_.state();
  JsonWriter json;
  json.begin_object();
  Response response;
  if (state == engine::State::Failed) {
    const auto failure = engine_.failure();
    json.member("status", "failed").member("reason", shown(failure ? failure->message : "unknown", 1000));
    response.status = 503;
  } else if (draining_ || state != engine::State::Ready) {
    json.member("status", "draining");
    response.status = 503;
  } else {
    json.member("status", "ok");
  }
  json.end_object();
  response.body = json.take();
  response.headers.emplace_back("Cache-Control", "no-store");
  return whole(std::move(response));
}

Answer Api::list_models(const Request&) const {
  JsonWriter json;
  json.begin_object().member("object", "list").key("data").begin_array();
  for (const std::string& name : card_.names) write_model(json, card_, name, engine_.max_context());
  json.end_array().end_object();
  return whole(Response{.body = json.take()});
}

Answer Api::one_model(const Request& request) const {
  static constexpr std::string_view kPrefix = "/v1/models/";
  const std::string name = percent_decode(path_of(request.target).substr(kPrefix.size()));
  json::object wanted{{"model", name}};
  Fields fields(wanted);
  (void)read_model(fields, card_);
  if (fields.error()) return whole(*fields.error());
  JsonWriter json;
  write_model(json, card_, name, engine_.max_context());
  return whole(Response{.body = json.take()});
}

AnswerHead Api::answer_head(const CommonFields& common, std::string_view id_prefix) const {
  const engine::Request& request = common.request;
  return {.id = new_id(id_prefix),
          .created = unix_time(),
          .model = common.model,
          .stream = common.stream,
          .include_usage = common.include_usage,
          .logprobs = request.logprobs >= 0,
          .top_logprobs = std::max(request.logprobs, 0),
          .tokens_as_ids = common.tokens_as_ids,
          .skip_special_tokens = request.skip_special_tokens,
          .stop_token_ids = request.stop_token_ids};
}

Answer Api::generate(const CommonFields& common, std::unique_ptr<AnswerFormat> format, std::string_view prompt_field) {
  const auto prompt = static_cast<std::int64_t>(common.request.prompt.size());
  if (prompt >= engine_.max_context()) {
    return whole(bad_field(std::string(prompt_field),
                           fmt::format("The prompt has {} tokens; the context holds {} with the answer, so at most {} work.",
                                       prompt, engine_.max_context(), engine_.max_context() - 1),
                           "context_length_exceeded"));
  }
  const std::uint64_t seed = common.seed ? *common.seed : random_number();
  std::vector<engine::Request> choices(static_cast<std::size_t>(common.choices), common.request);
  for (int i = 0; i < common.choices; ++i) {
    choices[static_cast<std::size_t>(i)].sampling.seed = seed_of_choice(seed, i);
  }
  auto started = Generation::start({.engine = engine_,
                                    .metrics = metrics_,
                                    .clock = kClock,
                                    .format = std::move(format),
                                    .stream = common.stream,
                                    .behind_bytes = options_.behind_bytes},
                                   std::move(choices));
  if (!started) return whole(to_api_error(started.error()));
  return {.response = {}, .stream = std::move(*started)};
}

Answer Api::chat(const Request& request) {
  if (auto refusal = refuse_new_work()) return whole(std::move(*refusal));
  auto body = read_body(request);
  if (!body) return whole(body.error());
  auto chat = read_chat_request(*body, served(), text_);
  if (!chat) return whole(chat.error());
  auto prompt = render_prompt(text_, chat->conversation);
  if (!prompt) return whole(prompt.error());
  engine::Request& ask = chat->common.request;
  ask.prompt = text_.encode(prompt->text);
  const ChatFormat::Reading reading{.inside_think = prompt->inside_think, .tools = chat->conversation.tools};
  auto format = std::make_unique<ChatFormat>(answer_head(chat->common, "chatcmpl-"), chat->common.choices, reading, text_);
  return generate(chat->common, std::move(format), "messages");
}

Answer Api::completion(const Request& request) {
  if (auto refusal = refuse_new_work()) return whole(std::move(*refusal));
  auto body = read_body(request);
  if (!body) return whole(body.error());
  auto read = read_completion_request(*body, served());
  if (!read) return whole(read.error());
  engine::Request& ask = read->common.request;
  const auto* given_text = std::get_if<std::string>(&read->prompt);
  ask.prompt = given_text != nullptr ? text_.encode(*given_text) : std::get<std::vector<TokenId>>(read->prompt);
  std::optional<CompletionFormat::Echo> echo;
  if (read->echo) {
    echo = {.text = given_text != nullptr ? *given_text : text_.decode(ask.prompt, ask.skip_special_tokens),
            .prompt = ask.prompt,
            .score_only = read->score_only};
  }
  auto format = std::make_unique<CompletionFormat>(answer_head(read->common, "cmpl-"), read->common.choices,
                                                   std::move(echo), text_);
  return generate(read->common, std::move(format), "prompt");
}

Answer Api::tokenize(const Request& request) const {
  auto body = read_body(request);
  if (!body) return whole(body.error());
  Fields fields(*body);
  (void)read_model(fields, card_);
  std::string text;
  if (body->contains("messages") && body->contains("prompt")) {
    fields.fail("prompt", "prompt and messages are both given; send one of them.");
  } else if (body->contains("messages")) {
    text::Conversation conversation;
    read_conversation(fields, text_, conversation);
    if (fields.ok()) {
      auto rendered = render_prompt(text_, conversation);
      if (!rendered) fields.fail(rendered.error());
      if (rendered) text = std::move(rendered->text);
    }
  } else {
    const auto prompt = fields.string("prompt");
    if (fields.ok() && !prompt) fields.fail("prompt", "prompt (a string) or messages is missing.");
    text = prompt.value_or("");
  }
  (void)fields.boolean("add_special_tokens");  // no model of this family has tokens to add
  const bool with_strings = fields.boolean("return_token_strs").value_or(false);
  fields.refuse_the_rest("/tokenize takes model, prompt or messages, and return_token_strs.");
  if (fields.error()) return whole(*fields.error());

  const std::vector<TokenId> ids = text_.encode(text);
  JsonWriter json;
  json.begin_object().member("count", static_cast<std::int64_t>(ids.size()));
  json.member("max_model_len", engine_.max_context());
  json.key("tokens").begin_array();
  for (const TokenId id : ids) json.number(id);
  json.end_array().key("token_strs");
  if (with_strings) {
    json.begin_array();
    const AnswerHead head{.skip_special_tokens = false};
    for (const TokenId id : ids) json.string(show_token(id, text_, head).name);
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return whole(Response{.body = json.take()});
}

Answer Api::detokenize(const Request& request) const {
  auto body = read_body(request);
  if (!body) return whole(body.error());
  Fields fields(*body);
  (void)read_model(fields, card_);
  const json::array* given = fields.array("tokens");
  if (fields.ok() && given == nullptr) fields.fail("tokens", "tokens (a list of ids) is missing.");
  std::vector<TokenId> ids;
  const std::int32_t vocab = engine_.vocab();
  for (std::size_t i = 0; fields.ok() && i < given->size(); ++i) {
    const json::value& id = (*given)[i];
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= vocab) {
      fields.fail("tokens", fmt::format("tokens[{}] must be a token id from 0 to {}, got {}.", i, vocab - 1, shown_value(id)));
    } else {
      ids.push_back(static_cast<TokenId>(id.get_int64()));
    }
  }
  fields.refuse_the_rest("/detokenize takes model and tokens.");
  if (fields.error()) return whole(*fields.error());
  JsonWriter json;
  json.begin_object().member("prompt", text_.decode(ids, /*skip_special=*/false)).end_object();
  return whole(Response{.body = json.take()});
}

}  // namespace tandem::server
