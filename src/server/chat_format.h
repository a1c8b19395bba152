#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "server/answer_format.h"
#include "text/reasoning.h"
#include "text/tool_call_parser.h"

namespace tandem::server {

// Answers of /v1/chat/completions. In a stream the role comes with the first delta only, and one
// chunk per choice has the finish reason.
class ChatFormat final : public AnswerFormat {
 public:
  struct Reading {
    bool inside_think = false;  // the prompt ends inside a thinking block
    boost::json::array tools;   // offered: their calls are looked for in the text; empty for none
  };
  // `text` outlives this.
  ChatFormat(AnswerHead head, int choices, const Reading& reading, const PromptText& text);

  void delta(int choice, engine::Delta delta, std::string& out) override;
  void finish(int choice, const engine::Finish& finish, std::string& out) override;
  void end(std::string& out) override;

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  using Piece = text::ToolCallParser::Piece;
  struct Choice {
    explicit Choice(const Reading& reading);
    bool started = false;  // its first chunk is out
    text::ReasoningSplitter splitter;
    std::unique_ptr<text::ToolCallParser> tools;
    std::string content, reasoning;    // gathered, not streamed
    std::vector<Call> calls;           // a stream keeps only their ids
    std::vector<std::string> logprobs; // JSON of the entries
    std::string reason, stop_reason;   // the latter as JSON
  };

  void piece(int index, const std::string& reasoning, const Piece& piece, std::vector<std::string> logprobs,
             std::string& out);
  void begin_chunk(JsonWriter& json) const;
  void end_chunk(JsonWriter& json, std::string& out) const;
  void write_choice(JsonWriter& json, int index) const;

  const AnswerHead head_;
  const PromptText& text_;
  std::vector<Choice> choices_;
  engine::Usage usage_;
};

}  // namespace tandem::server
