#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::text::jinja {

// Python's view of a string on UTF-8 bytes: a position is a count of code points. Every text given here
// is valid UTF-8 (templates and values are checked where they enter) and every result is again.
//
// Thread: any, no state. Cost: linear in the bytes that are looked at.

inline constexpr std::size_t kNoPosition = std::string_view::npos;

[[nodiscard]] bool is_valid_utf8(std::string_view text);
[[nodiscard]] bool is_ascii(std::string_view text);

// Code points of `text`.
[[nodiscard]] std::size_t length(std::string_view text);

// Byte offset of code point `index`; text.size() when there are fewer.
[[nodiscard]] std::size_t byte_offset(std::string_view text, std::size_t index);

// The code point at byte `at`; moves `at` behind it.
[[nodiscard]] char32_t next_code_point(std::string_view text, std::size_t& at);

void append_code_point(std::string& out, char32_t c);

// Classes as str.isspace, str.isprintable and so on know them (for one code point).
[[nodiscard]] bool is_space(char32_t c);
[[nodiscard]] bool is_printable(char32_t c);
[[nodiscard]] bool is_alpha(char32_t c);
[[nodiscard]] bool is_decimal(char32_t c);
[[nodiscard]] bool is_digit(char32_t c);
[[nodiscard]] bool is_numeric(char32_t c);
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);
[[nodiscard]] bool is_title(char32_t c);
[[nodiscard]] bool is_cased(char32_t c);
[[nodiscard]] bool is_identifier_start(char32_t c);
[[nodiscard]] bool is_identifier_part(char32_t c);

// Case mappings, with the ones that change the length ("ß" to "SS") and the final sigma.
[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] std::string capitalize(std::string_view text);
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string swap_case(std::string_view text);

// str.strip: `chars` empty means white space. Which ends are stripped is up to the flags.
[[nodiscard]] std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right);
[[nodiscard]] std::string_view strip_space(std::string_view text, bool left, bool right);

}  // namespace tandem::text::jinja
