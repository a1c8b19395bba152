#pragma once

#include <string>

#include "text/jinja/parser.h"

namespace tandem::text::jinja {

// One level of brackets, blocks or operators while it lives.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    // Checked before counting: the destructor does not run when this throws.
    if (parser_.nesting_ >= kMaxNesting)
      parser_.fail("the template is nested deeper than " + std::to_string(kMaxNesting) + " levels");
    ++parser_.nesting_;
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace tandem::text::jinja
