#pragma once

#include <boost/json.hpp>
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
};

}  // namespace tandem::server
