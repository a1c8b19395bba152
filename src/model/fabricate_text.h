#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "model/fabricate.h"

namespace tandem::model {

inline constexpr int kLeastFabricatedVocab = 512;

// The id of <|endoftext|>, which config.json names as the end.
[[nodiscard]] TokenId made_end_of_text(int vocab);

// Texts of the small files of a fabricated checkpoint. All valid for every vocabulary from
// kLeastFabricatedVocab on.
[[nodiscard]] std::string made_config(const FabricateOptions& options);
// Byte-level BPE: 256 bytes, then words over a to z with and without a leading space, then the family's
// 33 added tokens where the vocabulary of the published sizes has them, else at the end. Every id has a
// token.
[[nodiscard]] std::string made_tokenizer(int vocab);
[[nodiscard]] std::string made_tokenizer_config(int vocab, int max_context);
[[nodiscard]] std::string made_chat_template();

}  // namespace tandem::model
