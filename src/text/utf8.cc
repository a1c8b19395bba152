#include "text/utf8.h"

#include <simdjson.h>

#include <algorithm>

namespace tandem::text {
namespace {

// The second byte has a narrower range after four of the leads: no overlong forms, no surrogates,
// nothing above U+10FFFF.
struct Lead {
  int bytes;  // of the whole character; 0: not a lead
  unsigned char second_low, second_high;
};

Lead read_lead(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  using Kind = Utf8Step::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = read_lead(byte(0));
  if (lead.bytes == 0) return {Kind::Invalid, 1, 0};
  const auto wanted = static_cast<std::size_t>(lead.bytes);
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == text.size()) return {Kind::Unfinished, i, 0};
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::Invalid, i, 0};
  }
  const char* at = text.data();
  return {Kind::Character, wanted, next_code_point(at)};
}

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

std::string to_utf8(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size() + 16);
  Utf8Stream stream;
  stream.push(bytes, out);
  if (!stream.held().empty()) out += kReplacement;
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

void Utf8Stream::begin_after(std::string_view bytes) {
  std::string before;
  push(bytes, before);
  foreign_ = held_.size();
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // First the held character, byte by byte: at most three rounds.
  while (!held_.empty() && !bytes.empty()) {
    held_ += bytes.front();
    const Utf8Step step = utf8_step(held_);
    if (step.kind == Utf8Step::Kind::Invalid) {
      // The new byte does not belong to it; it is read again below as a first byte.
      held_.pop_back();
      if (held_.size() > foreign_) out += kReplacement;
      drop_held();
      break;
    }
    bytes.remove_prefix(1);
    if (step.kind == Utf8Step::Kind::Character) {
      out += held_;
      drop_held();
    }
  }
  const std::string_view all = bytes;
  std::size_t copied = 0;
  std::size_t at = 0;
  while (at < all.size()) {
    if (static_cast<unsigned char>(all[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = utf8_step(all.substr(at));
    if (step.kind == Utf8Step::Kind::Character) {
      at += step.bytes;
      continue;
    }
    out += all.substr(copied, at - copied);
    if (step.kind == Utf8Step::Kind::Invalid) {
      out += kReplacement;
    } else {
      held_ = all.substr(at);
    }
    at += step.bytes;
    copied = at;
  }
  out += all.substr(copied);
}

void Utf8Stream::drop_held() {
  held_.clear();
  foreign_ = 0;
}

}  // namespace tandem::text
