#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "ops/sampling.h"
#include "ops/step_view.h"

namespace tandem::rank {

// One row of a step as the controller sends it: a piece of one request, the same on every rank.
struct Row {
  RequestId request;
  SlotId slot;  // bound to the request by its first row, until the drop (R1.4)
  ops::RowKind kind = ops::RowKind::Decode;
  std::int32_t base_pos = 0;      // absolute position of its first token; 0 starts from zero state
  std::int32_t tokens = 1;        // >= 1; 1 for Decode
  std::vector<TokenId> ids;       // `tokens` ids, or empty for a decode row that takes LastSampled(slot)
  std::vector<PageId> new_pages;  // pages added to the request's table by this row (delta)
  std::optional<ops::SamplingParams> sampling;  // in the request's first row, and only there
  bool samples = true;                          // decode rows, and the prefill row that finishes its prompt
  TokenId score = -1;                           // >= 0 on a row that samples: score this id instead (gates)
  std::int32_t generated = 0;                   // tokens the request has generated before this step
  std::int32_t top_logprobs = -1;               // of the sampled token: alternatives, or -1 for no logprobs
  // >= 0: the artifact also scores this row's tokens as part of the prompt, with that many
  // alternatives: entry i is about the token at base_pos + i + 1, for those the prompt has.
  std::int32_t prompt_logprobs = -1;
  TokenId prompt_next = -1;  // the prompt's token after this chunk, -1 if the chunk ends the prompt
};

// An ordered list of rows: decode rows first. The order is the order of every collective.
struct Step {
  std::vector<Row> rows;
  std::int32_t padding_rows = 0;  // decode rows on the trash slot and the scratch page, after the decode rows
};

// What rank 0 returns for a row (R2.4): keyed by request, in any order.
struct Artifact {
  RequestId request;
  std::optional<ops::TokenChoice> choice;         // present iff the row samples
  std::vector<ops::TokenChoice> prompt_logprobs;  // one per scored prompt token, in order
};

struct StepResult {
  std::vector<Artifact> artifacts;
};

// What the controller expects of a dropped request (R4.2).
enum class Expectation : std::uint8_t { MustBeAbsent, MustExist };

struct Drop {
  RequestId request;
  Expectation expectation = Expectation::MustExist;
};

// The sizes that were agreed at start-up: the minimum over ranks (R5.1).
struct Capacity {
  std::int32_t slots = 0;             // requests that may hold state at once
  std::int32_t pages = 0;             // KV pages, scratch page not counted
  std::int32_t max_context = 0;       // tokens of one request, prompt and completion
  std::int32_t max_step_tokens = 0;   // tokens of a step without decode rows
  std::int32_t max_mixed_tokens = 0;  // tokens of a step with decode rows
  std::int32_t vocab = 0;             // ids 0..vocab-1 may be given as input
};

}  // namespace tandem::rank
