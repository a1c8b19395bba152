#pragma once

#include <string>

#include "server/fields.h"
#include "server/prompt_text.h"

namespace tandem::server {

// The fields of /v1/chat/completions and /tokenize that make a prompt.
struct ChatPrompt {
  Conversation conversation;
  bool continue_final_message = false;  // the last message is the beginning of the answer
};

// Reads messages, tools, tool_choice, chat_template_kwargs, add_generation_prompt and
// continue_final_message. Rules (docs/api.md): leading system and developer messages become one
// system message; content parts are joined; a call's arguments become an object. The first error
// stays in `fields`.
void read_chat_prompt(Fields& fields, const PromptText& text, ChatPrompt& out);

struct RenderedPrompt {
  std::string text;
  bool inside_think = false;  // the answer begins as reasoning
};

// The prompt's text. Error: 400 with the template's reason.
[[nodiscard]] tl::expected<RenderedPrompt, ApiError> render_prompt(const PromptText& text, const ChatPrompt& prompt);

}  // namespace tandem::server
