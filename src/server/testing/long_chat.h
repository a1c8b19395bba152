#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>

#include "base/json_writer.h"

namespace tandem::server::testing {

// Prose with code in between, as people send it; the same for the same seed.
inline std::string prose_and_code(std::size_t bytes, unsigned seed) {
  static constexpr std::array<std::string_view, 64> kWords = {
      "the", "server", "takes", "a", "request", "and", "splits", "it", "into", "rows", "because", "every", "step", "runs", "all",
      "of", "them", "together", "which", "keeps", "memory", "busy", "when", "several", "people", "ask", "at", "once", "however",
      "there", "is", "no", "guarantee", "that", "an", "answer", "arrives", "before", "another", "one", "starts", "so", "we",
      "measure", "latency", "throughput", "carefully", "with", "real", "examples", "from", "production", "for", "instance",
      "München", "naïve", "résumé", "café", "function", "variable", "temperature", "yesterday", "understanding", "I'm"};
  static constexpr std::array<std::string_view, 6> kCode = {
      "\n```python\nfor i, row in enumerate(rows):\n    total += row.weight * scale[i]\n```\n",
      "\n\n  if (count != 0 && items[index] == nullptr) return std::nullopt;\n",
      " `SELECT name, price FROM items WHERE id = 1729 ORDER BY price DESC;` ",
      "\n- first point: 12,345.67 EUR\n- second point: 2026-11-30T07:45:00Z\n",
      " https://example.org/path?query=value#part ", "\n\n# Heading\n\n1. One\n2. Two\n\n"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += kWords[random() % kWords.size()];
    text += random() % 14 == 0 ? ". " : random() % 11 == 0 ? ", " : " ";
    if (random() % 60 == 0) text += kCode[random() % kCode.size()];
  }
  return text;
}

// The body of a chat request: a system message, two tools, and turns that hold `bytes` of text together.
inline std::string long_chat(std::size_t bytes) {
  constexpr int kTurns = 8;
  JsonWriter json;
  json.begin_object().member("model", "m").member("temperature", 0.7).member("max_tokens", 256).member("stream", true);
  json.key("messages").begin_array();
  json.begin_object().member("role", "system").member("content", "You answer briefly and show your sources.").end_object();
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    json.begin_object().member("role", turn % 2 == 0 ? "user" : "assistant");
    json.member("content", prose_and_code(bytes / kTurns, turn + 1)).end_object();
  }
  json.begin_object().member("role", "user").member("content", "What follows from this?").end_object().end_array();
  json.key("tools").begin_array();
  for (const std::string_view name : {"search", "calculate"}) {
    json.begin_object().member("type", "function").key("function").begin_object().member("name", name);
    json.member("description", "Looks something up and returns what was found.").key("parameters").begin_object().member("type", "object");
    json.key("properties").begin_object();
    for (const std::string_view field : {"query", "language", "limit"})
      json.key(field).begin_object().member("type", "string").member("description", "What is wanted of it.").end_object();
    json.end_object().end_object().end_object().end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace tandem::server::testing
