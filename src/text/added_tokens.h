#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::text {

// A token that is found in the text as it stands, before anything else looks at it.
struct AddedToken {
  TokenId id = -1;
  std::string content;   // UTF-8, not empty
  bool special = false;  // control, not text: left out of decoded text on request
};

// All added tokens of a vocabulary, and the search for them: leftmost, then longest.
//
// Built once, then constant: any thread may search. Time: the text's bytes times, at worst, the
// longest token's.
class AddedTokens {
 public:
  // The same token twice is one token. Error: Corrupt, when id or content are taken by another.
  [[nodiscard]] Result<void> add(AddedToken token);

  struct Match {
    std::size_t begin = std::string_view::npos;  // npos: there is none
    const AddedToken* token = nullptr;
  };
  // The first at or after `from`.
  [[nodiscard]] Match find_in(std::string_view text, std::size_t from) const;

  [[nodiscard]] const AddedToken* find(TokenId id) const;
  [[nodiscard]] const AddedToken* find(std::string_view content) const;
  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }  // by id
  [[nodiscard]] TokenId end_id() const { return tokens_.empty() ? 0 : tokens_.back().id + 1; }

 private:
  // A trie, children in a list: few tokens, seldom entered.
  struct Node {
    unsigned char byte = 0;
    TokenId token = -1;
    std::int32_t child = -1, sibling = -1;
  };
  [[nodiscard]] std::int32_t child(std::int32_t node, unsigned char byte) const;

  std::vector<AddedToken> tokens_;  // sorted by id
  std::vector<Node> nodes_{1};
  std::array<bool, 256> begins_token_{};
  unsigned char only_first_ = 0;  // the byte that all tokens begin with
  int first_bytes_ = 0;           // how many bytes begin a token
};

}  // namespace tandem::text
