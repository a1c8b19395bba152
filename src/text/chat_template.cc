#include "text/chat_template.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>
#include <memory>

#include "base/read_file.h"
#include "text/jinja/context.h"
#include "text/json_value.h"

namespace tandem::text {
namespace {

namespace json = boost::json;

// What the caller's variables may not replace.
constexpr std::string_view kOwn[] = {"messages", "tools", "documents", "add_generation_prompt"};
constexpr std::string_view kTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

// The text of a token: a string, or an object with `content`.
std::optional<std::string> token_text(const json::value& token) {
  const json::value* text = &token;
  if (token.is_object()) text = token.get_object().if_contains("content");
  if (text == nullptr || !text->is_string()) return std::nullopt;
  return std::string(text->get_string().data(), text->get_string().size());
}

jinja::Variables special_tokens(const json::object& config) {
  jinja::Variables out;
  for (const std::string_view name : kTokens) {
    const json::value* token = config.if_contains(name);
    if (token == nullptr) continue;
    if (auto text = token_text(*token))
      out.emplace_back(std::string(name), jinja::Value::string(std::move(*text)));
  }
  return out;
}

struct Sources {
  std::string plain;
  std::string for_tools;  // empty: none
  std::string file;
};

Result<Sources> listed_sources(const json::array& list, const std::string& file) {
  Sources out{.plain = {}, .for_tools = {}, .file = file};
  for (const json::value& entry : list) {
    const json::object* object = entry.if_object();
    const json::value* name = object != nullptr ? object->if_contains("name") : nullptr;
    const json::value* text = object != nullptr ? object->if_contains("template") : nullptr;
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string())
      return fail(ErrorKind::Invalid, file + ": each entry of chat_template needs a name and a template");
    if (name->get_string() == "default")
      out.plain = std::string(text->get_string().data(), text->get_string().size());
    if (name->get_string() == "tool_use")
      out.for_tools = std::string(text->get_string().data(), text->get_string().size());
  }
  if (out.plain.empty())
    return fail(ErrorKind::Invalid, file + ": the list chat_template has no entry named \"default\"");
  return out;
}

Result<jinja::Template> parse_from(const std::string& source, const std::string& file) {
  auto parsed = jinja::Template::parse(source);
  if (!parsed) return fail(ErrorKind::Invalid, file + ": chat template, " + parsed.error().message);
  return parsed;
}

bool is_own(std::string_view name) {
  return std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

jinja::Value with(const jinja::Value& dict, std::string_view key, jinja::Value value) {
  auto copy = std::make_shared<jinja::Dict>(dict.as<jinja::Dict>());
  copy->set(jinja::Value::string(std::string(key)), std::move(value));
  return jinja::make_dict(std::move(copy));
}

// `message` with the arguments of its calls as mappings.
Result<jinja::Value> with_parsed_arguments(jinja::Value message, const std::string& place) {
  using jinja::Kind;
  if (!message.is(Kind::Dict)) return message;
  const jinja::Value* calls = message.as<jinja::Dict>().find("tool_calls");
  if (calls == nullptr || !calls->is(Kind::List)) return message;
  std::vector<jinja::Value> made = calls->items();
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (!made[i].is(Kind::Dict)) continue;
    const jinja::Value* function = made[i].as<jinja::Dict>().find("function");
    if (function == nullptr || !function->is(Kind::Dict)) continue;
    const jinja::Value* arguments = function->as<jinja::Dict>().find("arguments");
    if (arguments == nullptr || !arguments->is(Kind::String)) continue;
    auto parsed = parse_json(arguments->as_string());
    if (!parsed || !parsed->is(Kind::Dict)) {
      const std::string field = place + ".tool_calls[" + std::to_string(i) + "].function.arguments";
      return fail(ErrorKind::Invalid,
                  field + " must be the text of a JSON object" + (parsed ? "" : ": " + parsed.error().message),
                  field);
    }
    made[i] = with(made[i], "function", with(*function, "arguments", std::move(*parsed)));
  }
  return with(message, "tool_calls", jinja::Value::list(std::move(made)));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, jinja::RenderOptions options) {
  TANDEM_ASSIGN(auto parsed, jinja::Template::parse(source));
  ChatTemplate out(std::move(parsed));
  out.options_ = std::move(options);
  return out;
}

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder, jinja::RenderOptions options) {
  json::object config;
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config_path)) {
    TANDEM_ASSIGN(const std::string text, read_file(config_path));
    boost::system::error_code error;
    json::value parsed = json::parse(text, error);
    if (error || !parsed.is_object())
      return fail(ErrorKind::Invalid, config_path.string() + " is not a JSON object");
    config = std::move(parsed.get_object());
  }
  Sources sources;
  const std::filesystem::path own_file = folder / "chat_template.jinja";
  const json::value* inside = config.if_contains("chat_template");
  if (std::filesystem::exists(own_file)) {
    TANDEM_ASSIGN(sources.plain, read_file(own_file));
    sources.file = own_file.string();
  } else if (inside != nullptr && inside->is_string()) {
    sources = {.plain = std::string(inside->get_string().data(), inside->get_string().size()),
               .for_tools = {},
               .file = config_path.string()};
  } else if (inside != nullptr && inside->is_array()) {
    TANDEM_ASSIGN(sources, listed_sources(inside->get_array(), config_path.string()));
  } else {
    return fail(ErrorKind::NotFound, folder.string() +
                                         " has no chat template: neither chat_template.jinja nor "
                                         "chat_template in tokenizer_config.json");
  }
  TANDEM_ASSIGN(auto plain, parse_from(sources.plain, sources.file));
  ChatTemplate out(std::move(plain));
  if (!sources.for_tools.empty()) {
    TANDEM_ASSIGN(out.for_tools_, parse_from(sources.for_tools, sources.file));
  }
  out.tokens_ = special_tokens(config);
  out.options_ = std::move(options);
  return out;
}

bool ChatTemplate::reads(std::string_view variable) const {
  if (is_own(variable) || jinja::find_global(variable) != nullptr) return false;
  return default_.reads(variable) || (for_tools_ && for_tools_->reads(variable));
}

Result<void> ChatTemplate::check(const jinja::Variables& variables) const {
  for (const auto& [name, value] : variables) {
    const std::string field = "chat_template_kwargs." + name;
    if (is_own(name))
      return fail(ErrorKind::Invalid, field + " cannot be set; it comes from the request itself", field);
    if (value.is_none()) continue;
    if (!reads(name))
      return fail(ErrorKind::Invalid, field + " is not read by this model's chat template", field);
    if (name == "enable_thinking" && !value.is(jinja::Kind::Bool))
      return fail(ErrorKind::Invalid, field + " must be true or false", field);
  }
  return {};
}

Result<std::string> ChatTemplate::render(const PromptInput& input) const {
  TANDEM_TRY(check(input.variables));
  jinja::Variables all = tokens_;
  for (const auto& [name, value] : input.variables)
    if (!value.is_none()) all.emplace_back(name, value);
  const bool has_tools = !input.tools.is_missing() && !input.tools.is_none();
  all.emplace_back("messages", input.messages);
  all.emplace_back("tools", has_tools ? input.tools : jinja::Value::none());
  all.emplace_back("documents", jinja::Value::none());
  all.emplace_back("add_generation_prompt", jinja::Value::boolean(input.add_generation_prompt));
  const jinja::Template& chosen = has_tools && for_tools_ ? *for_tools_ : default_;
  auto rendered = chosen.render(all, options_);
  if (!rendered) return fail(rendered.error().kind, std::move(rendered.error().message), "messages");
  return rendered;
}

Result<std::string> ChatTemplate::render(const json::array& messages, const json::array& tools,
                                         bool add_generation_prompt, const json::object& variables) const {
  PromptInput input{
      .messages = {}, .tools = {}, .variables = {}, .add_generation_prompt = add_generation_prompt};
  const auto located = [](Result<jinja::Value> value, std::string field) -> Result<jinja::Value> {
    if (!value) return fail(ErrorKind::Invalid, field + ": " + value.error().message, field);
    return value;
  };
  std::vector<jinja::Value> items;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string place = "messages[" + std::to_string(i) + "]";
    TANDEM_ASSIGN(auto item, located(to_value(messages[i]), place));
    TANDEM_ASSIGN(auto made, with_parsed_arguments(std::move(item), place));
    items.push_back(std::move(made));
  }
  input.messages = jinja::Value::list(std::move(items));
  if (!tools.empty()) {
    TANDEM_ASSIGN(input.tools, located(to_value(tools), "tools"));
  }
  for (const auto& member : variables) {
    std::string name(member.key());
    TANDEM_ASSIGN(auto value, located(to_value(member.value()), "chat_template_kwargs." + name));
    input.variables.emplace_back(std::move(name), std::move(value));
  }
  return render(input);
}

bool ends_inside_think(std::string_view prompt, std::optional<std::size_t> turn) {
  constexpr std::string_view kOpen = "<think>";
  if (!turn) {
    const std::size_t last = prompt.find_last_not_of(" \t\r\n");
    return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(kOpen);
  }
  prompt.remove_prefix(std::min(*turn, prompt.size()));
  const std::size_t open = prompt.rfind(kOpen);
  return open != std::string_view::npos && prompt.find("</think>", open) == std::string_view::npos;
}

}  // namespace tandem::text
