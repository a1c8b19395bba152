#pragma once

#include <string>
#include <vector>

#include "base/json_writer.h"
#include "server/answer_format.h"
#include "server/logprob_json.h"

namespace tandem::server {

// Answers of /v1/completions.
class CompletionFormat final : public AnswerFormat {
 public:
  struct Echo {
    std::string text;                // the prompt, put before each choice's text
    std::vector<TokenId> prompt;     // its ids, for their logprobs
    bool score_only = false;         // the generated token is not shown and not counted
  };

  // `text` outlives this. Without `echo` the prompt is not shown.
  CompletionFormat(AnswerHead head, int choices, std::optional<Echo> echo, const PromptText& text);

  void delta(int choice, engine::Delta delta, std::string& out) override;
  void finish(int choice, const engine::Finish& finish, std::string& out) override;
  void end(std::string& out) override;

 private:
  struct Choice {
    bool started = false;
    std::string text;
    CompletionLogprobs logprobs;
    std::string reason, stop_reason;
  };

  // What comes before the generated text: the prompt, once.
  void begin_choice(Choice& choice, const engine::Delta* first);
  void write_choice(JsonWriter& json, int index, bool with_logprobs, std::string_view text);
  void event(int index, std::string& out);

  const AnswerHead head_;
  const std::optional<Echo> echo_;
  std::vector<Choice> choices_;
  engine::Usage usage_;
};

}  // namespace tandem::server
