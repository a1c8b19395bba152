#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::text {

// The marks that a Qwen3.5 answer's tool call is written with, and whether a text begins with one.
//
//   <tool_call>
//   <function=NAME>
//   <parameter=KEY>
//   VALUE
//   </parameter>
//   </function>
//   </tool_call>

inline constexpr std::string_view kCallOpen = "<tool_call>";
inline constexpr std::string_view kCallClose = "</tool_call>";
inline constexpr std::string_view kFunctionOpen = "<function=";
inline constexpr std::string_view kFunctionClose = "</function>";
inline constexpr std::string_view kParameterOpen = "<parameter=";
inline constexpr std::string_view kParameterClose = "</parameter>";
inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";

enum class Match {
  No,
  Unfinished,  // the text ends before this can be told
  Yes,
};

struct MarkerMatch {
  Match match = Match::No;
  std::size_t bytes = 0;      // only for Yes
  std::string_view name = {};  // NAME or KEY, only for Yes
};

// Each looks at the beginning of `text`, at most some 300 bytes.

[[nodiscard]] MarkerMatch match_marker(std::string_view text, std::string_view marker);

// "<function=NAME>" or "<parameter=KEY>". A name has 1 to 128 bytes, none of them white space or an
// angle bracket.
[[nodiscard]] MarkerMatch match_named(std::string_view text, std::string_view open);

// "<tool_call>", white space, "<function=NAME>". Less than this is text that mentions a marker.
[[nodiscard]] MarkerMatch match_call_start(std::string_view text);

// The bytes of white space at the beginning. More than kMostSpace is not what stands between markers.
inline constexpr std::size_t kMostSpace = 16;
[[nodiscard]] std::size_t space_bytes(std::string_view text);

// Of held text that can no longer become a marker because the answer has ended: is it the trunk of
// one, not to be shown? "<" and "</" alone are text.
[[nodiscard]] inline bool is_marker_trunk(std::string_view held) { return !held.empty() && held != "<" && held != "</"; }

}  // namespace tandem::text
