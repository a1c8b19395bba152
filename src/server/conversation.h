#pragma once

#include "server/fields.h"
#include "server/prompt_text.h"

namespace tandem::server {

// Reads messages, tools, tool_choice, chat_template_kwargs, add_generation_prompt and
// continue_final_message of /v1/chat/completions and /tokenize. Rules (docs/api.md): leading system and
// developer messages become one system message; content parts are joined; a call's arguments are the text
// of an object. The first error stays in `fields`.
void read_conversation(Fields& fields, const PromptText& text, text::Conversation& out);

// The prompt's text. Error: 400 with the template's reason.
[[nodiscard]] tl::expected<text::Prompt, ApiError> render_prompt(const PromptText& text,
                                                                 const text::Conversation& conversation);

}  // namespace tandem::server
