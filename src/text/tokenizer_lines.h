#pragma once

#include <istream>
#include <ostream>

#include "base/result.h"
#include "text/tokenizer.h"

namespace tandem::text {

// Tokenizes or detokenizes line by line, for the command line and for tests. Each line of `in` is a
// JSON object, each answer too, in the same order:
//
//   {"text": "Hi", "special_tokens": "parse"}      -> {"ids":[13048],"text":"Hi"}
//   {"ids": [13048], "skip_special_tokens": true}  -> {"text":"Hi"}
//
// special_tokens is "parse" (the default) or "text"; the "text" of an answer is what the ids decode
// to, special tokens kept unless the line says otherwise. Empty lines are passed over.
//
// Error: Invalid, with the number of the line; answers to earlier lines are written by then.
[[nodiscard]] Result<void> tokenize_lines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out);

}  // namespace tandem::text
