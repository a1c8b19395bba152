#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <string>

#include "base/result.h"

namespace tandem::text {

// A chat in the template's terms: every message has a role and a content that is a string; a call's
// arguments are an object or the text of one. The wire's own rules are applied before.
struct Conversation {
  boost::json::array messages;
  boost::json::array tools;       // empty: none
  boost::json::object variables;  // chat_template_kwargs
  bool add_generation_prompt = true;
  // The last message is an assistant's and the beginning of the answer: the prompt ends exactly with its
  // content, with nothing behind it. Without this, a last assistant message is a finished turn and the
  // answer is a new one.
  bool continue_final_message = false;
};

struct Prompt {
  std::string text;
  bool inside_think = false;  // the answer begins as reasoning
};

// A model's template; knows nothing of continue_final_message.
using Render = std::function<Result<std::string>(const Conversation&)>;

// The prompt of a conversation. A continued one is rendered twice.
// Errors: Invalid with field continue_final_message: both flags are true, or the last message cannot be
// continued or is not printed by the template; else those of `render`.
// Thread: any. Cost: linear, and what `render` costs.
[[nodiscard]] Result<Prompt> make_prompt(const Render& render, const Conversation& conversation);

}  // namespace tandem::text
