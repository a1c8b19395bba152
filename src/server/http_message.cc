#include "server/http_message.h"

#include <charconv>

#include "text/utf8.h"

namespace tandem::server {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

std::string origin_form(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const std::size_t path = target.find_first_of("/?", scheme.size());
    if (path == std::string_view::npos) return "/";
    return target[path] == '?' ? "/" + std::string(target.substr(path)) : std::string(target.substr(path));
  }
  return std::string(target);
}

std::string_view path_of(std::string_view target) { return target.substr(0, target.find('?')); }

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

std::string head_text(const Response& response, HeadForm form) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  out += reason_phrase(response.status);
  out += "\r\nServer: tandem\r\nX-Content-Type-Options: nosniff\r\nContent-Type: " + response.content_type;
  if (!response.streamed) {
    out += "\r\nContent-Length: " + std::to_string(response.body.size());
  } else if (!form.http10) {
    out += "\r\nTransfer-Encoding: chunked";
  }
  for (const auto& [name, value] : response.headers) out += "\r\n" + name + ": " + value;
  if (!form.keep_alive) {
    out += "\r\nConnection: close";
  } else if (form.http10) {
    out += "\r\nConnection: keep-alive";
  }
  out += "\r\n\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;  // a chunk of no bytes would end the body
  char length[20];
  const auto end = std::to_chars(length, length + sizeof length, bytes.size(), 16).ptr;
  out.append(length, end);
  out += "\r\n";
  out += bytes;
  out += "\r\n";
}

void append_last_chunk(std::string& out) { out += "0\r\n\r\n"; }

std::string shown(std::string_view bytes, std::size_t max_bytes) {
  std::string out;
  while (!bytes.empty()) {
    const text::Utf8Step step = text::utf8_step(bytes);
    const bool character = step.kind == text::Utf8Step::Kind::Character;
    const std::string_view next = character ? bytes.substr(0, step.bytes) : text::kReplacement;
    if (out.size() + next.size() > max_bytes) {
      out += "...";
      break;
    }
    const bool control = character && (step.code_point < 0x20 || step.code_point == 0x7f);
    out += control ? std::string_view(" ") : next;
    bytes.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace tandem::server
