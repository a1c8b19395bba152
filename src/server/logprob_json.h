#pragma once

#include <string>

#include "base/json_writer.h"
#include "server/answer_format.h"

namespace tandem::server {

// Stands for an impossible token's logprob, which JSON has no number for.
inline constexpr float kImpossibleLogprob = -9999.0f;

[[nodiscard]] float finite_logprob(float logprob);

// A token as an entry shows it: its text (U+FFFD where it is part of a character), or "token_id:7".
// A special token has its name; its bytes are empty unless special tokens stand in the text, and so are those of a
// token that ended the answer and is left out of it: the joined bytes of all entries are the answer's.
struct ShownToken {
  std::string name;
  std::string bytes;
};
[[nodiscard]] ShownToken show_token(TokenId id, const PromptText& text, const AnswerHead& head);
[[nodiscard]] ShownToken show_token(const engine::TokenLogprob& entry, const PromptText& text, const AnswerHead& head);

// One entry of a chat choice's logprobs.content.
void write_chat_logprob(JsonWriter& json, const engine::TokenLogprob& entry, const PromptText& text,
                        const AnswerHead& head);

// A completion choice's logprobs: four lists of equal length, one entry a token.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const PromptText& text, const AnswerHead& head) : text_(text), head_(head) {}

  // A prompt's first token, which nothing predicts: null.
  void add_first(TokenId id);
  void add(const engine::TokenLogprob& entry);

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // Writes the object and forgets the entries; offsets go on counting.
  void write(JsonWriter& json);

 private:
  struct Entry {
    ShownToken token;
    bool first = false;
    engine::TokenLogprob logprob;
    std::int64_t offset = 0;  // characters of text before it
  };
  void push(Entry entry);

  const PromptText& text_;
  const AnswerHead& head_;
  std::vector<Entry> entries_;
  std::int64_t offset_ = 0;
};

}  // namespace tandem::server
