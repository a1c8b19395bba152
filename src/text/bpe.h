#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::text {

// Byte-level BPE: a piece of text starts as the tokens of its bytes; while two neighbours form a
// known pair, the pair of the lowest rank (the leftmost of equals) becomes one token.
//
// Built once (`add_token` for all, `seal_tokens`, `add_merge` in order of rank), then constant:
// `append` may be called from any thread. Time of `append`: n log n in the bytes of the piece.
class Bpe {
 public:
  Bpe();

  // `bytes` is what the token stands for. Error: Corrupt, when the id or the bytes are taken.
  [[nodiscard]] Result<void> add_token(TokenId id, std::string_view bytes);

  // After the last token. Error: Unsupported, when one of the 256 bytes has no token.
  [[nodiscard]] Result<void> seal_tokens();

  // Ranks count up with the calls. Error: Corrupt, when a part or the whole is not a token.
  [[nodiscard]] Result<void> add_merge(std::string_view left, std::string_view right);

  // Hints, so that loading does not grow tables.
  void reserve(std::size_t tokens, std::size_t merges, std::size_t bytes);

  // The token that stands for exactly these bytes; -1 if none.
  [[nodiscard]] TokenId find(std::string_view bytes) const;

  // Empty for an id without a token. Lives as long as the Bpe and no token is added.
  [[nodiscard]] std::string_view bytes(TokenId id) const {
    if (id < 0 || id >= end_id()) return {};
    const Span span = spans_[static_cast<std::size_t>(id)];
    return {arena_.data() + span.begin, span.size};
  }

  [[nodiscard]] TokenId end_id() const { return static_cast<TokenId>(spans_.size()); }  // one past the greatest

  // Appends the tokens of one piece.
  void append(std::string_view piece, std::vector<TokenId>& ids) const;

 private:
  struct Span {
    std::uint32_t begin = 0, size = 0;
  };
  // What a pair becomes. rank kNoRank: nothing.
  struct Merge {
    std::uint32_t rank;
    TokenId id;
  };
  struct Slot {
    std::uint64_t pair;
    Merge merge;
  };
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] Merge merge_of(TokenId left, TokenId right) const;
  [[nodiscard]] std::size_t find_slot(std::uint64_t pair) const;
  // A hash of the bytes beside the token, so that looking for others does not read its bytes.
  struct IndexSlot {
    std::uint32_t tag = 0;
    TokenId id = -1;  // -1: free
  };
  [[nodiscard]] std::size_t find_index(std::string_view bytes, std::uint64_t hash) const;
  void grow_index(std::size_t slots);
  void grow_merges(std::size_t slots);

  void append_short(std::string_view piece, std::vector<TokenId>& ids) const;
  void append_long(std::string_view piece, std::vector<TokenId>& ids) const;

  std::string arena_;             // the bytes of all tokens
  std::vector<Span> spans_;       // [end_id] into arena_
  std::size_t tokens_ = 0;
  std::vector<IndexSlot> index_;  // hash table of the tokens by bytes; a power of two
  std::vector<Slot> merges_;      // hash table of the pairs; a power of two
  std::size_t merge_count_ = 0;
  std::uint32_t next_rank_ = 0;
  TokenId last_merged_ = -1;
  std::array<TokenId, 256> byte_token_;
  std::uint64_t serial_;        // tells the Bpes of a process apart in the threads' caches
};

}  // namespace tandem::text
