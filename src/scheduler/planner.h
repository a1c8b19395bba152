#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "rank/step.h"
#include "scheduler/request.h"

// The planner: what runs next. Functions of their arguments only, so that a test can ask anything.
//
//   admission   first come first served by whole life (R5.2); nobody overtakes the head of the queue (R5.3)
//   a step      one row for each decoding request, then prompt chunks of the oldest requests, as far as
//               the token budget goes (step_budget). A chunk that does not finish its prompt ends on a
//               multiple of 64.
//
// Thread: any. Owns nothing.
namespace tandem::scheduler {

// The sizes a plan keeps to. Built once from the ranks' capacity.
struct Limits {
  std::int32_t slots = 0;             // requests that hold state at once
  std::int32_t pages = 0;             // KV pages of 64 tokens
  std::int32_t max_context = 0;       // prompt and completion tokens of one request
  std::int32_t max_step_tokens = 0;   // of a step without decode rows, and of one in which prompts are many
  std::int32_t max_mixed_tokens = 0;  // of a step with decode rows, those included; see step_budget()
  bool mixed = true;                  // off: a step holds decode rows or prompt chunks, never both
};

// Refuses budgets with which a request could wait for ever:
//   max_step_tokens >= 64, and max_mixed_tokens >= slots + 63 (mixed) or >= slots (not mixed).
// Error: Invalid, naming the flag and the smallest value that works.
[[nodiscard]] Result<void> check_limits(const Limits& limits);

// KV pages for a request's whole life (R5.2).
[[nodiscard]] std::int64_t pages_for_life(std::int32_t prompt_tokens, std::int32_t max_tokens);

// The most prompt + max_tokens that can ever be admitted: the context, or what the pool's pages hold.
[[nodiscard]] constexpr std::int32_t longest_life(std::int32_t max_context, std::int32_t pages) {
  const std::int64_t pool = std::int64_t{pages} * ops::kPageTokens + 1;
  return pool < max_context ? static_cast<std::int32_t>(pool) : max_context;
}

// Whether the request could be admitted to idle ranks. Error: Capacity, naming the limit (R5.3).
[[nodiscard]] Result<void> check_fits(const Limits& limits, std::int32_t prompt_tokens,
                                      std::int32_t max_tokens);

// Whether the head of the queue is admitted now. Only ever asked about the head: if it does not fit,
// everybody behind it waits too, so what ends next goes to the head.
[[nodiscard]] constexpr bool head_fits(std::int64_t free_slots, std::int64_t free_pages,
                                       std::int64_t pages_needed) {
  return free_slots >= 1 && free_pages >= pages_needed;
}

// One admitted request that may take part in the next step.
struct Progress {
  const RequestSpec* spec = nullptr;  // must live until plan() returns
  SlotId slot;
  std::int32_t run = 0;              // tokens in steps sent so far, prompt and completion: next base_pos
  std::int32_t generated = 0;        // completion tokens that those steps sample
  TokenId last = ops::kLastSampled;  // id of the newest; kLastSampled while its step is in flight

  [[nodiscard]] bool decoding() const { return run >= spec->prompt_tokens(); }
  // Every token it may generate is sampled by a step already sent.
  [[nodiscard]] bool exhausted() const { return generated >= spec->max_tokens; }
};

// What a step made of rows is counted as.
struct StepShape {
  std::int32_t rows = 0, decode_rows = 0, tokens = 0;
};
[[nodiscard]] StepShape shape(const rank::Step& step);

// The most tokens of a step while `decoding` requests want their next token and `waiting` their first.
//   nobody decodes    max_step_tokens
//   otherwise         max_mixed_tokens * 4 (waiting - 1) / decoding, but at least max_mixed_tokens and at most
//                     max_step_tokens
// A longer step delays those who decode and serves those who queue behind the prompt being read, so their numbers
// decide: nothing grows for one prompt, however long, nor before a quarter as many queue as decode. With mixed off it
// bounds the prompt chunks that go between two steps of decode rows.
[[nodiscard]] std::int32_t step_budget(const Limits& limits, std::int32_t decoding, std::int32_t waiting);

// The next step, but for the rows' new pages, which the page table adds; without rows if nothing can run.
// `live` is in order of admission. With mixed off, `after_prefill` says that the last step held prompt
// chunks: the two kinds take turns while both have work, so neither starves.
[[nodiscard]] rank::Step plan(const Limits& limits, std::span<const Progress> live, bool after_prefill);

}  // namespace tandem::scheduler
