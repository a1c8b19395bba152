#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/conversation.h"

namespace tandem::server {

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
  // As text::Render. Error: Invalid with the template's own words, or with the budget that it exceeded.
  [[nodiscard]] virtual Result<std::string> render(const text::Conversation& conversation) const = 0;
};

}  // namespace tandem::server
