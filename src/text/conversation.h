#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>

#include "base/result.h"
#include "text/chat_template.h"

namespace tandem::text {

// From a chat as OpenAI's clients write it to what chat templates expect. Rules:
//
// - Roles: system, developer, user, assistant, tool. The system and developer messages at the front are
//   joined, in order and with an empty line between, into one system message; a later one is an error.
// - Content is a string or a list of text parts, whose texts are joined; other kinds of part are refused
//   by name. Null or missing counts as "" for an assistant, and is an error elsewhere. An empty list, a
//   number, an object is an error, in tool results too.
// - An assistant's tool calls need a function with a name; its arguments are the text of a JSON object,
//   or the object itself, or missing or "" for none. Integers in the text stay exact.
// - Reasoning may be called reasoning_content, reasoning or thinking; templates find it under the first
//   and the last of these names, as Hugging Face gives it to them.
// - Everything else in a message is passed on as it is.
//
// Errors: Invalid; `field` and message name the place, "messages[3].tool_calls[0].function.arguments".
// Thread: any. Cost: linear.
[[nodiscard]] Result<jinja::Value> prepare_messages(const boost::json::array& messages);

struct ChatInput {
  boost::json::array messages;    // as on the wire
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

// Prepares and renders. Errors: those of prepare_messages and ChatTemplate::render; both flags true; a
// last message that cannot be continued, or that the template does not print.
[[nodiscard]] Result<Prompt> make_prompt(const ChatTemplate& chat_template, const ChatInput& input);

}  // namespace tandem::text
