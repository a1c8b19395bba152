// Reads an input as tokenizer.json; whatever it is, encodes it with a small tokenizer too. Promises: decoding
// gives UTF-8, every id is known, and text whose ids are decoded and encoded again is the same text.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/jinja/unicode.h"
#include "text/tokenizer.h"
#include "text/tokenizer_fixture.h"

namespace {

using namespace tandem::text;

void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens how : {SpecialTokens::Parse, SpecialTokens::AsText}) {
    const auto ids = tokenizer.encode(text, how);
    for (const tandem::TokenId id : ids)
      if (!tokenizer.has_token(id)) std::abort();
    const std::string decoded = tokenizer.decode(ids, false);
    if (!jinja::is_valid_utf8(decoded)) std::abort();
    if (how == SpecialTokens::Parse && tokenizer.decode(tokenizer.encode(decoded, how), false) != decoded) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer small = *Tokenizer::parse(fixture::tokenizer_json(), fixture::tokenizer_config_json());
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  use(small, input);
  if (!input.starts_with('{')) return 0;
  if (const auto made = Tokenizer::parse(std::string(input), fixture::tokenizer_config_json())) use(*made, "hello <think> wörld \n\n 12");
  (void)Tokenizer::parse(fixture::tokenizer_json(), std::string(input));
  return 0;
}
