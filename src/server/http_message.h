#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::server {

// A request as the handlers see it; the connection has read and bounded it.
struct Request {
  std::string method;        // upper case, as sent
  std::string target;        // path and query (origin_form); any bytes
  std::string content_type;  // empty: none given
  std::string body;          // any bytes
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // beyond type, length, connection
  bool streamed = false;  // the body comes in parts of unknown total length; `body` is empty
};

[[nodiscard]] std::string_view reason_phrase(int status);

// "http://host/path" as proxies get it is "/path"; anything else stays.
[[nodiscard]] std::string origin_form(std::string_view target);

// The part of the target before '?'.
[[nodiscard]] std::string_view path_of(std::string_view target);

// "%2F" becomes '/'. A broken escape stays as it is.
[[nodiscard]] std::string percent_decode(std::string_view text);

struct HeadForm {
  bool http10 = false;      // no chunks: a streamed body ends with the connection
  bool keep_alive = true;
};

// Status line and headers, with the empty line. Without a streamed body it has Content-Length.
[[nodiscard]] std::string head_text(const Response& response, HeadForm form);

// Chunked coding: appends `bytes` as one chunk (nothing for empty bytes), and the end mark.
void append_chunk(std::string& out, std::string_view bytes);
void append_last_chunk(std::string& out);

// What may be shown of something a client sent: at most `max_bytes` bytes, valid UTF-8 without
// control characters, "..." where it was cut.
[[nodiscard]] std::string shown(std::string_view bytes, std::size_t max_bytes = 100);

}  // namespace tandem::server
