#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace tandem::text::jinja {

// A place in a template: both count from 1, columns in characters.
struct Position {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

// How a parse or a rendering ends early. Thrown inside this folder only: an expression may fail at any
// depth of operators, filters and calls, and Template::parse and Template::render turn it into the
// Result that everybody else sees.
struct Failure {
  enum class Kind {
    Syntax,   // the template cannot be read
    Runtime,  // an operation does not fit its values
    Raised,   // the template called raise_exception; `message` is what it gave
    Limit,    // a bound of Limits was reached
  };
  Kind kind;
  std::string message;
  Position at = {};  // line 0: the evaluator's current place
};

[[noreturn]] inline void fail_runtime(std::string message) {
  throw Failure{Failure::Kind::Runtime, std::move(message)};
}
[[noreturn]] inline void fail_limit(std::string message) {
  throw Failure{Failure::Kind::Limit, std::move(message)};
}

}  // namespace tandem::text::jinja
