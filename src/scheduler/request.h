#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ops/sampling.h"

namespace tandem::scheduler {

// One request as the scheduler sees it: numbers only, no text. Checked by the engine before it comes here.
struct RequestSpec {
  RequestId id;                       // given by the mailbox; order of ids = order of arrival
  std::vector<TokenId> prompt;        // >= 1 ids, each below the model's vocabulary
  ops::SamplingParams sampling;       // sent to the ranks with the request's first row
  std::int32_t max_tokens = 1;        // >= 1; prompt + max_tokens within the context (R5.3)
  std::vector<TokenId> end_ids;       // ascending; sampling one ends the request; min_tokens masks them
  std::int32_t top_logprobs = -1;     // alternatives per sampled token, -1: no logprobs
  std::int32_t prompt_logprobs = -1;  // the same for the prompt's tokens

  [[nodiscard]] std::int32_t prompt_tokens() const { return static_cast<std::int32_t>(prompt.size()); }
};

enum class EndReason : std::uint8_t {
  EndId,       // sampled an id of end_ids
  StopString,  // the text worker posted a Stop
  Length,      // max_tokens reached
  Error,       // `error` says why: cancelled, non-finite logits, a failed replica
};

// How a request ended. Sent once per request, after every rank has let go of it (R4.3), or after the
// failure of the replica (R3.3).
struct End {
  EndReason reason = EndReason::Error;
  std::int32_t completion_tokens = 0;  // counted for usage: up to and with the token that ended it
  TokenId end_id = -1;                 // with EndId
  Error error = {};                    // with Error
};

// What the scheduler tells the text worker about one request, in this order: any number of updates
// without `end`, then exactly one with it.
struct Update {
  RequestId request;
  std::optional<ops::TokenChoice> token;          // the next completion token
  std::vector<ops::TokenChoice> prompt_logprobs;  // once, with the first token; entry 0: second prompt id
  std::optional<End> end;                         // after `token`, if both are there
};

// Receives the updates of a tick, in order per request.
// Thread: the scheduler's. Must not wait for a client and must not call the scheduler.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_updates(std::vector<Update> updates) = 0;
};

}  // namespace tandem::scheduler
