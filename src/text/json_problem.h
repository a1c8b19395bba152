#pragma once

#include <simdjson.h>

#include <string_view>

namespace tandem::text {

// What is wrong with a text that simdjson does not take as JSON, after "it": words for whoever looks at the file, not
// for whoever calls the library.
[[nodiscard]] inline std::string_view json_problem(simdjson::error_code code) {
  switch (code) {
    case simdjson::EMPTY: return "is empty";
    case simdjson::CAPACITY: return "is too large";
    case simdjson::MEMALLOC: return "needs more memory than there is";
    case simdjson::DEPTH_ERROR: return "nests too deep";
    case simdjson::UTF8_ERROR: return "holds bytes that are not UTF-8";
    case simdjson::UNCLOSED_STRING: return "ends inside a string";
    case simdjson::STRING_ERROR: return "holds a string with a wrong escape";
    case simdjson::UNESCAPED_CHARS: return "holds a string with a bare control character";
    case simdjson::NUMBER_ERROR: return "holds a number that is none";
    case simdjson::T_ATOM_ERROR:
    case simdjson::F_ATOM_ERROR:
    case simdjson::N_ATOM_ERROR: return "holds a word that is not true, false or null";
    case simdjson::INCORRECT_TYPE: return "is not an object";
    default: return "is cut short, or has a comma, colon or bracket too many or too few";
  }
}

}  // namespace tandem::text
