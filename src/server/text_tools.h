#pragma once

#include <filesystem>
#include <optional>

#include "server/prompt_text.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::server {

// PromptText of a model's folder: owns its tokenizer and, if there is one, its chat template; without
// one, chat is refused. Not to be moved once the server or an engine knows it.
class TextTools final : public PromptText {
 public:
  // Errors: the tokenizer's and the template's, with the file; a missing template is none.
  [[nodiscard]] static Result<TextTools> load(const std::filesystem::path& folder);

  TextTools(text::Tokenizer tokenizer, std::optional<text::ChatTemplate> chat_template)
      : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {}

  [[nodiscard]] const text::Tokenizer& tokenizer() const { return tokenizer_; }

  [[nodiscard]] std::vector<TokenId> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  [[nodiscard]] std::string token_bytes(TokenId id) const override;
  [[nodiscard]] bool is_special(TokenId id) const override;
  [[nodiscard]] bool has_template() const override { return template_.has_value(); }
  [[nodiscard]] bool template_reads(std::string_view variable) const override;
  [[nodiscard]] Result<std::string> render(const text::Conversation& conversation) const override;

 private:
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> template_;
};

}  // namespace tandem::server
