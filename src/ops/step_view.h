#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "ops/sampling.h"

namespace tandem::ops {

inline constexpr int kPageTokens = 64;        // tokens of a KV page = the delta rule's chunk
inline constexpr TokenId kLastSampled = -1;   // "the id last sampled for this row's slot" (R1.7)

enum class RowKind : std::uint8_t { Decode, Prefill };

// One row of the step: a piece of one request.
struct StepRow {
  RowKind kind = RowKind::Decode;
  std::int32_t token_begin = 0;  // its first token in the ragged batch
  std::int32_t tokens = 1;       // >= 1; exactly 1 for Decode
  std::int32_t base_pos = 0;     // absolute position of its first token; 0 reads no conv window and no state
  SlotId slot;                   // the trash slot for a padding row
  std::int32_t page_begin = 0;   // its page table is pages[page_begin .. page_begin + page_count)
  std::int32_t page_count = 0;   // covers base_pos + tokens tokens at least
  std::int32_t known_pages = 0;  // leading entries that an earlier step already gave for this slot
  // Non-null in a request's first row only: binds the slot's sampling settings until the next binding.
  // Must live until begin_step returns.
  const SamplingParams* sampling = nullptr;
};

// One row of logits that the step wants.
struct LogitRow {
  std::int32_t token = 0;        // index in the ragged batch whose hidden vector it is made of
  SlotId slot;                   // whose settings, penalties and last-sampled id it uses
  std::int64_t position = 0;     // absolute position of the token that is chosen or scored: noise counter
  std::int32_t step_index = 0;   // how many tokens the request has generated before this one (min_tokens)
  TokenId target = -1;           // >= 0: score this id, sample nothing, store nothing
  std::int32_t top_logprobs = -1;  // alternatives wanted, 0..kMaxTopLogprobs; -1: no logprobs at all
};

// What operators need to know of a step. Every rank sees the same one (R2.6).
// Decode rows come first, so the tokens of decode rows are [0, decode_rows) and all others follow.
// Lifetime: the spans live until begin_step returns; backends keep what they need.
struct StepView {
  std::span<const TokenId> tokens;      // [T] ids, or kLastSampled (decode rows only)
  std::span<const StepRow> rows;        // decode rows, then prefill rows
  std::span<const PageId> pages;        // all page tables one after another
  std::span<const LogitRow> logit_rows; // in ascending order of token
  int decode_rows = 0;

  [[nodiscard]] int total_tokens() const { return static_cast<int>(tokens.size()); }
};

// The largest step that will ever come: scratch and metadata buffers are sized by it once.
struct StepLimits {
  int max_tokens = 0;         // T of one step, padding included
  int max_rows = 0;           // rows of one step, padding included
  int max_context = 0;        // tokens of one request, prompt and completion
  int max_logit_rows = 0;     // rows of the logits buffer; more logit rows are done in groups
  int slots = 0;              // state slots; slot number `slots` is the trash slot
  int pages = 0;              // KV pages; page number `pages` is the scratch page
  int vocab = 0;              // rows of the head
};

}  // namespace tandem::ops
