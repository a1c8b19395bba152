#pragma once

#include <boost/json.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::server {

// A conversation for the chat template, already in the template's terms: every content a string,
// every call's arguments an object.
struct Conversation {
  boost::json::array messages;
  boost::json::array tools;          // empty: none
  boost::json::object variables;     // chat_template_kwargs
  bool add_generation_prompt = true;
};

struct ParsedToolCall {
  std::string name;
  std::string arguments;  // JSON object as text
};

// A piece of an answer, split into what is text and what is a call.
struct ToolPiece {
  std::string text;                          // content, in order before the calls below
  struct CallDelta {
    int index = 0;
    std::string name;       // with the first delta of a call, else empty
    std::string arguments;  // appended
  };
  std::vector<CallDelta> calls;
};

// Takes an answer's text as it comes. Thread: one at a time.
class ToolStream {
 public:
  virtual ~ToolStream() = default;
  virtual ToolPiece push(std::string_view text) = 0;
  // The text has ended. Also reports whether the last call was left unfinished.
  virtual ToolPiece finish() = 0;
  [[nodiscard]] virtual bool unfinished_call() const = 0;
};

// All that the server needs of a model's text side. The real one stands in text_tools.h; tests bring
// their own. Thread: any, all methods. Lifetime: longer than the server.
class PromptText {
 public:
  virtual ~PromptText() = default;

  // Special tokens' texts become their ids.
  [[nodiscard]] virtual std::vector<TokenId> encode(std::string_view text) const = 0;
  // Valid UTF-8; ids without a token decode to nothing.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  // The bytes one id stands for; may be a part of a character. A special token's are its name.
  [[nodiscard]] virtual std::string token_bytes(TokenId id) const = 0;
  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;

  [[nodiscard]] virtual bool has_template() const = 0;
  // Whether the template reads a variable of that name.
  [[nodiscard]] virtual bool template_reads(std::string_view variable) const = 0;
  // Error: Invalid with the template's own words, or with the budget that it exceeded.
  [[nodiscard]] virtual Result<std::string> render(const Conversation& conversation) const = 0;

  // `tools` as in the request. Null: the model's calls are not understood, text passes as it is.
  [[nodiscard]] virtual std::unique_ptr<ToolStream> tool_stream(const boost::json::array& tools) const = 0;
};

}  // namespace tandem::server
