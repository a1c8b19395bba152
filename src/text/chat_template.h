#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace tandem::text {

// What one prompt is made from, as template values.
struct PromptInput {
  jinja::Value messages;       // a list of mappings
  jinja::Value tools;          // a list; Missing: none, the template sees None
  jinja::Variables variables;  // chat_template_kwargs, in the caller's names
  bool add_generation_prompt = true;
};

// The chat template of a model, with its special tokens' texts (bos_token and so on) as variables.
//
// Thread: any, immutable. Lifetime: copies share the parsed template.
class ChatTemplate {
 public:
  // From a model's folder: chat_template.jinja, else `chat_template` in tokenizer_config.json, which is
  // text or a list of {name, template} with "default" and perhaps "tool_use" (taken when tools are given).
  // Errors: NotFound, the model has no template; Invalid, with the file, line and column.
  [[nodiscard]] static Result<ChatTemplate> load(const std::filesystem::path& folder,
                                                 jinja::RenderOptions options = {});
  [[nodiscard]] static Result<ChatTemplate> parse(std::string_view source, jinja::RenderOptions options = {});

  // Whether the template (or that for tools) reads a variable that the caller may set: not messages,
  // tools, documents, add_generation_prompt, nor a built-in function.
  [[nodiscard]] bool reads(std::string_view variable) const;

  // The prompt. Rules for `variables`: a name that reads() does not know is refused, null counts as not
  // given, and enable_thinking is true or false.
  // Errors, Invalid: field "messages" with the template's own words (raise_exception) or with the place in
  // the template and what failed there, including the bounds of jinja::Limits; field
  // "chat_template_kwargs.NAME".
  [[nodiscard]] Result<std::string> render(const PromptInput& input) const;
  // The same from JSON; `tools` empty means none. A call's arguments may be the text of a JSON object: the
  // template sees the object, in which integers of any length are exact.
  // Error besides: Invalid, "messages[1].tool_calls[0].function.arguments" are no such text.
  [[nodiscard]] Result<std::string> render(const boost::json::array& messages,
                                           const boost::json::array& tools, bool add_generation_prompt,
                                           const boost::json::object& variables) const;

 private:
  explicit ChatTemplate(jinja::Template plain) : default_(std::move(plain)) {}
  Result<void> check(const jinja::Variables& variables) const;

  jinja::Template default_;
  std::optional<jinja::Template> for_tools_;
  jinja::Variables tokens_;
  jinja::RenderOptions options_;
};

// Whether an answer to `prompt` begins as reasoning: behind the last turn's beginning, the prompt opens
// <think> and does not close it. `turn` is where the text that the model is to continue begins; without
// it, only a <think> at the prompt's very end counts (blanks behind it do not matter), since a user may
// write the word anywhere else.
[[nodiscard]] bool ends_inside_think(std::string_view prompt, std::optional<std::size_t> turn = std::nullopt);

}  // namespace tandem::text
