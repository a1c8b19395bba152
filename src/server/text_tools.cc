#include "server/text_tools.h"

#include "base/log.h"

namespace tandem::server {

Result<TextTools> TextTools::load(const std::filesystem::path& folder) {
  TANDEM_ASSIGN(auto tokenizer, text::Tokenizer::load(folder));
  auto chat_template = text::ChatTemplate::load(folder);
  if (!chat_template && chat_template.error().kind != ErrorKind::NotFound) return fail(std::move(chat_template.error()));
  if (!chat_template) {
    log_warn("[http] {}; /v1/chat/completions is refused", chat_template.error().message);
    return TextTools(std::move(tokenizer), std::nullopt);
  }
  return TextTools(std::move(tokenizer), std::move(*chat_template));
}

std::vector<TokenId> TextTools::encode(std::string_view prompt) const {
  return tokenizer_.encode(prompt, text::SpecialTokens::Parse);
}

std::string TextTools::decode(std::span<const TokenId> ids, bool skip_special) const {
  return tokenizer_.decode(ids, skip_special);
}

std::string TextTools::token_bytes(TokenId id) const { return std::string(tokenizer_.token_bytes(id)); }

bool TextTools::is_special(TokenId id) const { return tokenizer_.is_special(id); }

bool TextTools::template_reads(std::string_view variable) const { return template_ && template_->reads(variable); }

Result<std::string> TextTools::render(const text::Conversation& conversation) const {
  if (!template_) return fail(ErrorKind::Unsupported, "this model has no chat template");
  return template_->render(conversation.messages, conversation.tools, conversation.add_generation_prompt,
                           conversation.variables);
}

}  // namespace tandem::server
