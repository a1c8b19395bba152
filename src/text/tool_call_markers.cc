#include "text/tool_call_markers.h"

#include <algorithm>

namespace tandem::text {
namespace {

constexpr std::size_t kLongestName = 128;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

MarkerMatch match_marker(std::string_view text, std::string_view marker) {
  const std::size_t common = std::min(text.size(), marker.size());
  if (text.substr(0, common) != marker.substr(0, common)) return {};
  if (common < marker.size()) return {Match::Unfinished};
  return {Match::Yes, marker.size()};
}

MarkerMatch match_named(std::string_view text, std::string_view open) {
  const MarkerMatch opened = match_marker(text, open);
  if (opened.match != Match::Yes) return opened;
  for (std::size_t i = open.size();; ++i) {
    const std::size_t length = i - open.size();
    if (length > kLongestName) return {};
    if (i == text.size()) return {Match::Unfinished};
    if (text[i] == '>') {
      if (length == 0) return {};
      return {Match::Yes, i + 1, text.substr(open.size(), length)};
    }
    if (text[i] == '<' || is_space(text[i])) return {};
  }
}

MarkerMatch match_call_start(std::string_view text) {
  const MarkerMatch opened = match_marker(text, kCallOpen);
  if (opened.match != Match::Yes) return opened;
  text.remove_prefix(kCallOpen.size());
  const std::size_t space = space_bytes(text);
  if (space > kMostSpace) return {};
  text.remove_prefix(space);
  MarkerMatch function = match_named(text, kFunctionOpen);
  function.bytes += kCallOpen.size() + space;
  return function;
}

std::size_t space_bytes(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_space) - text.begin());
}

}  // namespace tandem::text
