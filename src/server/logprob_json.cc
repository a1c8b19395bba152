#include "server/logprob_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "text/utf8.h"

namespace tandem::server {
namespace {

// Characters that begin in these bytes; summed over an answer's tokens this counts its characters
// wherever the tokens cut them.
std::int64_t characters_begun(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void write_token(JsonWriter& json, const ShownToken& token, float logprob) {
  json.member("token", token.name).member("logprob", finite_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char c : token.bytes) json.number(static_cast<int>(static_cast<unsigned char>(c)));
  json.end_array();
}

}  // namespace

float finite_logprob(float logprob) { return std::isfinite(logprob) ? logprob : kImpossibleLogprob; }

ShownToken show_token(TokenId id, const PromptText& text, const AnswerHead& head) {
  ShownToken out{.name = {}, .bytes = text.token_bytes(id)};
  out.name = head.tokens_as_ids ? fmt::format("token_id:{}", id) : text::to_utf8(out.bytes);
  if (head.skip_special_tokens && text.is_special(id)) out.bytes.clear();
  return out;
}

ShownToken show_token(const engine::TokenLogprob& entry, const PromptText& text, const AnswerHead& head) {
  ShownToken out = show_token(entry.id, text, head);
  if (!entry.in_text) out.bytes.clear();
  return out;
}

void write_chat_logprob(JsonWriter& json, const engine::TokenLogprob& entry, const PromptText& text,
                        const AnswerHead& head) {
  json.begin_object();
  write_token(json, show_token(entry, text, head), entry.logprob);
  json.key("top_logprobs").begin_array();
  const std::size_t count = std::min(entry.top.size(), static_cast<std::size_t>(head.top_logprobs));
  for (std::size_t i = 0; i < count; ++i) {
    json.begin_object();
    write_token(json, show_token(entry.top[i].first, text, head), entry.top[i].second);
    json.end_object();
  }
  json.end_array().end_object();
}

void CompletionLogprobs::add_first(TokenId id) {
  push({.token = show_token(id, text_, head_), .first = true, .logprob = {.id = id}});
}

void CompletionLogprobs::add(const engine::TokenLogprob& entry) {
  push({.token = show_token(entry, text_, head_), .first = false, .logprob = entry});
}

void CompletionLogprobs::push(Entry entry) {
  entry.offset = offset_;
  offset_ += characters_begun(entry.token.bytes);
  entries_.push_back(std::move(entry));
}

void CompletionLogprobs::write(JsonWriter& json) {
  json.begin_object();
  json.key("text_offset").begin_array();
  for (const Entry& entry : entries_) json.number(entry.offset);
  json.end_array();
  json.key("token_logprobs").begin_array();
  for (const Entry& entry : entries_) entry.first ? json.null() : json.number(finite_logprob(entry.logprob.logprob));
  json.end_array();
  json.key("tokens").begin_array();
  for (const Entry& entry : entries_) json.string(entry.token.name);
  json.end_array();
  json.key("top_logprobs");
  if (head_.top_logprobs == 0) {
    json.null();
  } else {
    json.begin_array();
    for (const Entry& entry : entries_) {
      if (entry.first) {
        json.null();
        continue;
      }
      // Two ids can show alike (parts of characters); the better one keeps the name.
      std::set<std::string> names;
      json.begin_object();
      const auto member = [&](TokenId id, float logprob) {
        const std::string name = show_token(id, text_, head_).name;
        if (names.insert(name).second) json.member(name, finite_logprob(logprob));
      };
      const std::size_t count = std::min(entry.logprob.top.size(), static_cast<std::size_t>(head_.top_logprobs));
      for (std::size_t i = 0; i < count; ++i) member(entry.logprob.top[i].first, entry.logprob.top[i].second);
      member(entry.logprob.id, entry.logprob.logprob);
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
  entries_.clear();
}

}  // namespace tandem::server
