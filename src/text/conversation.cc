#include "text/conversation.h"

#include <algorithm>
#include <boost/json/string.hpp>
#include <string_view>
#include <utility>

#include "text/chat_template.h"

namespace tandem::text {
namespace {

namespace json = boost::json;

// Stand where text that the template prints ends. Private-use characters: no ordinary text has them, and
// no template strips them.
constexpr std::string_view kEndOfPrefill = "\xee\x80\x80prefill\xee\x80\x80";
constexpr std::string_view kEndOfBefore = "\xee\x80\x80message before\xee\x80\x80";

tl::unexpected<Error> refuse(std::string why) {
  return fail(ErrorKind::Invalid, "continue_final_message " + std::move(why), "continue_final_message");
}

void mark(json::value& message, std::string_view with) {
  message.at("content").get_string().append({with.data(), with.size()});
}

Result<Prompt> continued(const Render& render, Conversation conversation) {
  json::array& messages = conversation.messages;
  if (messages.empty() || messages.back().at("role") != "assistant" ||
      messages.back().get_object().contains("tool_calls"))
    return refuse("needs an assistant message without tool calls at the end of messages.");
  mark(messages.back(), kEndOfPrefill);
  TANDEM_ASSIGN(auto text, render(conversation));
  const std::size_t end = text.rfind(kEndOfPrefill);
  if (end == std::string::npos)
    return refuse("does not work: this model's chat template does not print the last message.");
  text.resize(end);

  // Only what stands behind the message before can open a thinking block that counts. A second rendering
  // tells where that is; the first cannot carry the mark, since it would keep blanks from being stripped.
  std::size_t behind = text.size();
  if (messages.size() > 1) {
    mark(messages[messages.size() - 2], kEndOfBefore);
    if (auto again = render(conversation)) {
      const std::size_t before = again->rfind(kEndOfBefore);
      const std::size_t stop = again->rfind(kEndOfPrefill);
      if (before != std::string::npos && stop != std::string::npos && before < stop)
        behind = std::min(behind, stop - before - kEndOfBefore.size());
    }
  }
  const bool inside = ends_inside_think(text, text.size() - behind);
  return Prompt{std::move(text), inside};
}

}  // namespace

Result<Prompt> make_prompt(const Render& render, const Conversation& conversation) {
  if (conversation.continue_final_message) {
    if (conversation.add_generation_prompt)
      return refuse("and add_generation_prompt cannot both be true.");
    return continued(render, conversation);
  }
  TANDEM_ASSIGN(auto text, render(conversation));
  const bool inside = ends_inside_think(text);
  return Prompt{std::move(text), inside};
}

}  // namespace tandem::text
