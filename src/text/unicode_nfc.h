#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::text {

// Normalization form C, as the reference tokenizer does it: with the combining classes and the
// decompositions of Unicode 9. Marks that are younger (the stability policy of Unicode forbids other
// changes) stand where they were written, as every code point without a combining class does.
// Thread: any. Time: n log n.

// True if `utf8`, which must be UTF-8, is surely in form C already; then nothing need be copied.
[[nodiscard]] bool is_nfc(std::string_view utf8);

// `utf8` must be UTF-8.
[[nodiscard]] std::string to_nfc(std::string_view utf8);

// The parts that the table of unicode_class.h is made of.
namespace nfc {

[[nodiscard]] std::uint8_t combining_class(char32_t c);
// Does `c` alone turn into something else, or can it merge with a character before it?
[[nodiscard]] bool may_change(char32_t c);

}  // namespace nfc

}  // namespace tandem::text
