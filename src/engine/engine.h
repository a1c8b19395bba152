#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ops/sampling.h"

namespace tandem::engine {

// What a client asks for, already validated, rendered and tokenized.
struct Request {
  std::vector<TokenId> prompt;            // 1..max_context - 1 ids, each below the model's vocabulary
  ops::SamplingParams sampling;           // seed resolved; stop_ids are set by the engine
  std::optional<std::int32_t> max_tokens; // absent: min(--default-max-tokens, context - prompt) (R5.2)
  bool ignore_eos = false;                // the model's end ids do not end the request
  std::vector<TokenId> stop_token_ids;    // the request's own, honoured also with ignore_eos
  std::vector<std::string> stop;          // stop strings
  bool include_stop = false;              // the matched stop string or id's text stays in the output
  std::int32_t logprobs = -1;             // alternatives per token, -1: none
  std::int32_t prompt_logprobs = -1;      // the same for prompt tokens
  bool skip_special_tokens = true;        // in the text
  bool reasoning = false;                 // the prompt ends inside <think>: split the text
  bool split_reasoning = false;           // chat: <think>...</think> goes to reasoning_text
};

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;  // best first
  bool in_text = true;  // false: it ended the request, and its own text is left out
};

enum class FinishReason : std::uint8_t { Stop, Length };

struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t completion_tokens = 0;
};

// Something new for one client. Text is complete UTF-8; any member may be empty.
struct Delta {
  std::string text;
  std::string reasoning_text;
  std::vector<TokenId> tokens;           // ids that this delta accounts for
  std::vector<TokenLogprob> logprobs;    // one per id of `tokens` if asked for
  std::vector<TokenLogprob> prompt_logprobs;  // once, before the first token; entry 0 is for the second prompt token
};

struct Finish {
  FinishReason reason = FinishReason::Stop;
  Usage usage;
  std::optional<TokenId> stop_token;     // the id that ended it, if one did
  std::optional<std::string> stop_text;  // the stop string that ended it, if one did
};

// Receives one request's events: any number of deltas, then exactly one finish or failure (R3.3).
// Thread: the engine's text worker calls; implementations must not block and must not call back into
// the engine except for cancel(), state() and failure().
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_delta(RequestId request, Delta delta) = 0;
  virtual void on_finish(RequestId request, Finish finish) = 0;
  virtual void on_failure(RequestId request, Error error) = 0;
};

// A snapshot of the load, for /metrics and back-pressure. Zero after a fatal failure (R3.3).
struct Load {
  std::int32_t running = 0;         // requests that hold a slot
  std::int32_t waiting = 0;         // admitted to the queue, no slot yet
  std::int32_t slots = 0, slots_used = 0;
  std::int32_t pages = 0, pages_used = 0;
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;      // prefilled so far
  std::uint64_t generated_tokens = 0;   // sampled and delivered so far
  std::uint64_t requests_finished_stop = 0, requests_finished_length = 0;
  std::uint64_t requests_cancelled = 0, requests_failed = 0;
  std::int32_t last_step_rows = 0, last_step_decode_rows = 0, last_step_tokens = 0;
};

enum class State : std::uint8_t { Ready, Draining, Failed, Stopped };

// The public C++ API. Thread: any, all methods.
class Engine {
 public:
  virtual ~Engine() = default;

  // Queues the request and returns its id; events go to `sink`, which is kept until the last one.
  // Errors: Invalid (a field, named), Capacity (can never fit, with the limit; R5.3), Overloaded (queue
  // full), Poisoned (the replica failed), Cancelled (draining).
  [[nodiscard]] virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;

  // Ends the request at any stage (R4.6). Its sink gets on_failure(Cancelled) once it is cleaned up,
  // unless it ended first. Unknown ids are ignored: the request has ended.
  virtual void cancel(RequestId request) = 0;

  [[nodiscard]] virtual Load load() const = 0;
  [[nodiscard]] virtual State state() const = 0;
  [[nodiscard]] virtual std::optional<Error> failure() const = 0;  // set with State::Failed
  [[nodiscard]] virtual std::int32_t max_context() const = 0;      // prompt + completion tokens
  [[nodiscard]] virtual std::int32_t vocab() const = 0;

  // Refuses new requests; those in flight go on. Returns at once.
  virtual void drain() = 0;
  // Ends everything: unresolved requests get one terminal error each. Blocks until the ranks have joined.
  [[nodiscard]] virtual Result<void> stop() = 0;
};

}  // namespace tandem::engine
