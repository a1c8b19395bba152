#pragma once

#include "server/common_fields.h"
#include "server/conversation.h"

namespace tandem::server {

struct ChatRequest {
  CommonFields common;
  text::Conversation conversation;
};

// A body of /v1/chat/completions. Error: 400 or 404 for the first thing that is wrong.
[[nodiscard]] tl::expected<ChatRequest, ApiError> read_chat_request(const json::object& body, const Served& served,
                                                                    const PromptText& text);

}  // namespace tandem::server
