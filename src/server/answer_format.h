#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/prompt_text.h"

namespace tandem::server {

// How an endpoint writes answers: as `data:` events, or gathered into one body. One object per HTTP
// request, for all its choices.
//
// Thread: one at a time (the connection's).
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Appends the events, if streamed; gathers, if not.
  virtual void delta(int choice, engine::Delta delta, std::string& out) = 0;
  virtual void finish(int choice, const engine::Finish& finish, std::string& out) = 0;

  // After the last choice: usage event if asked for and [DONE], or the whole body.
  virtual void end(std::string& out) = 0;
};

// What both endpoints' formats are made from.
struct AnswerHead {
  std::string id;             // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;   // Unix time
  std::string model;          // as shown
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;      // asked for
  int top_logprobs = 0;
  bool tokens_as_ids = false;
  bool skip_special_tokens = true;
  std::vector<TokenId> stop_token_ids;  // the request's own: only these are shown as stop_reason
};

}  // namespace tandem::server
