#include "text/conversation.h"

#include <algorithm>
#include <boost/json/string.hpp>
#include <iterator>
#include <optional>

#include "text/json_value.h"

namespace tandem::text {
namespace {

namespace json = boost::json;
using jinja::Value;

// Stand where text that the template prints ends. Private-use characters: no ordinary text has them, and
// no template strips them.
constexpr std::string_view kEndOfPrefill = "\xee\x80\x80prefill\xee\x80\x80";
constexpr std::string_view kEndOfBefore = "\xee\x80\x80message before\xee\x80\x80";

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr std::string_view kReasoning[] = {"reasoning_content", "reasoning", "thinking"};

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

tl::unexpected<Error> refuse(const std::string& field, std::string why) {
  return fail(ErrorKind::Invalid, field + " " + std::move(why), field);
}

Result<std::string> joined_parts(const json::array& parts, const std::string& field) {
  if (parts.empty()) return refuse(field, "is an empty list; it needs at least one text part");
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part_field = field + "[" + std::to_string(i) + "]";
    const json::object* part = parts[i].if_object();
    if (part == nullptr) return refuse(part_field, "must be an object with type and text");
    const json::value* type = part->if_contains("type");
    if (type == nullptr || !type->is_string()) return refuse(part_field + ".type", "is missing");
    if (type->get_string() != "text")
      return refuse(part_field + ".type", "is \"" + std::string(view(type->get_string()).substr(0, 60)) +
                                              "\"; only text parts are supported");
    const json::value* text = part->if_contains("text");
    if (text == nullptr || !text->is_string()) return refuse(part_field + ".text", "must be a string");
    out += view(text->get_string());
  }
  return out;
}

// Empty optional: null or missing.
Result<std::optional<std::string>> content_of(const json::object& message, const std::string& field) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr || content->is_null()) return std::nullopt;
  if (content->is_string()) return std::string(view(content->get_string()));
  if (!content->is_array()) return refuse(field, "must be a string or a list of text parts");
  TANDEM_ASSIGN(auto text, joined_parts(content->get_array(), field));
  return text;
}

Result<Value> arguments_of(const json::object& function, const std::string& field) {
  const json::value* arguments = function.if_contains("arguments");
  if (arguments == nullptr || (arguments->is_string() && arguments->get_string().empty()))
    return jinja::make_dict(std::make_shared<jinja::Dict>());
  if (arguments->is_object()) return to_value(*arguments);
  if (!arguments->is_string()) return refuse(field, "must be the text of a JSON object");
  auto parsed = parse_json(view(arguments->get_string()));
  if (!parsed) return refuse(field, "must be the text of a JSON object: " + parsed.error().message);
  if (!parsed->is(jinja::Kind::Dict)) return refuse(field, "must be the text of a JSON object");
  return parsed;
}

Result<Value> copied(const json::object& object,
                     std::initializer_list<std::pair<std::string_view, Value>> changed) {
  auto out = std::make_shared<jinja::Dict>();
  for (const auto& member : object) {
    const std::string_view key(member.key().data(), member.key().size());
    const auto* found =
        std::find_if(changed.begin(), changed.end(), [&](const auto& c) { return c.first == key; });
    Value value;
    if (found != changed.end()) {
      value = found->second;
    } else {
      TANDEM_ASSIGN(value, to_value(member.value()));
    }
    if (!value.is_missing()) out->set(Value::string(std::string(key)), std::move(value));
  }
  for (const auto& [key, value] : changed)
    if (!value.is_missing()) out->set(Value::string(std::string(key)), value);
  return jinja::make_dict(std::move(out));
}

Result<Value> tool_calls_of(const json::value& calls, const std::string& field) {
  if (calls.is_null()) return Value();
  if (!calls.is_array()) return refuse(field, "must be a list");
  std::vector<Value> out;
  for (std::size_t i = 0; i < calls.get_array().size(); ++i) {
    const std::string call_field = field + "[" + std::to_string(i) + "]";
    const json::object* call = calls.get_array()[i].if_object();
    if (call == nullptr) return refuse(call_field, "must be an object");
    const json::value* function = call->if_contains("function");
    if (function == nullptr || !function->is_object()) return refuse(call_field + ".function", "is missing");
    const json::value* name = function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string() || name->get_string().empty())
      return refuse(call_field + ".function.name", "is missing");
    TANDEM_ASSIGN(auto arguments, arguments_of(function->get_object(), call_field + ".function.arguments"));
    TANDEM_ASSIGN(auto made, copied(function->get_object(), {{"arguments", std::move(arguments)}}));
    TANDEM_ASSIGN(auto copy, copied(*call, {{"function", std::move(made)}}));
    out.push_back(std::move(copy));
  }
  // A list without calls is none; templates differ on it.
  return out.empty() ? Value() : Value::list(std::move(out));
}

Result<Value> reasoning_of(const json::object& message, const std::string& prefix) {
  for (const std::string_view name : kReasoning) {
    const json::value* text = message.if_contains(name);
    if (text == nullptr || text->is_null()) continue;
    if (!text->is_string()) return refuse(prefix + "." + std::string(name), "must be a string");
    return Value::string(std::string(view(text->get_string())));
  }
  return Value();
}

Result<Value> prepared(const json::object& message, const std::string& role, std::string content,
                       const std::string& prefix) {
  Value calls, reasoning;
  if (role == "assistant") {
    TANDEM_ASSIGN(reasoning, reasoning_of(message, prefix));
    if (const json::value* given = message.if_contains("tool_calls")) {
      TANDEM_ASSIGN(calls, tool_calls_of(*given, prefix + ".tool_calls"));
    }
  }
  return copied(message, {{"role", Value::string(role == "developer" ? "system" : role)},
                          {"content", Value::string(std::move(content))},
                          {"tool_calls", std::move(calls)},
                          {"reasoning_content", reasoning},
                          {"reasoning", Value()},
                          {"thinking", reasoning}});
}

}  // namespace

Result<Value> prepare_messages(const json::array& messages) {
  std::vector<Value> out;
  std::optional<std::string> system;  // the joined messages at the front
  const json::object* first_system = nullptr;
  bool leading = true;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string prefix = "messages[" + std::to_string(i) + "]";
    const json::object* message = messages[i].if_object();
    if (message == nullptr) return refuse(prefix, "must be an object with role and content");
    const json::value* role_value = message->if_contains("role");
    const std::string role(role_value != nullptr && role_value->is_string() ? view(role_value->get_string())
                                                                            : std::string_view());
    if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles))
      return refuse(prefix + ".role", "must be system, developer, user, assistant or tool");
    TANDEM_ASSIGN(auto content, content_of(*message, prefix + ".content"));
    if (!content && role != "assistant") return refuse(prefix + ".content", "is missing");
    if (role == "system" || role == "developer") {
      if (!leading)
        return refuse(prefix,
                      "is a " + role + " message behind other messages; they must stand at the front");
      if (first_system == nullptr) first_system = message;
      system = system ? *system + "\n\n" + *content : *content;
      continue;
    }
    if (leading && system) {
      TANDEM_ASSIGN(auto joined, prepared(*first_system, "system", *system, "messages[0]"));
      out.push_back(std::move(joined));
    }
    leading = false;
    TANDEM_ASSIGN(auto made, prepared(*message, role, content.value_or(""), prefix));
    out.push_back(std::move(made));
  }
  if (leading && system) {
    TANDEM_ASSIGN(auto joined, prepared(*first_system, "system", *system, "messages[0]"));
    out.push_back(std::move(joined));
  }
  return Value::list(std::move(out));
}

namespace {

// `messages` with `mark` behind the content of message `index`.
Value marked(const Value& messages, std::size_t index, std::string_view mark) {
  std::vector<Value> items = messages.items();
  auto changed = std::make_shared<jinja::Dict>(items[index].as<jinja::Dict>());
  std::string content = changed->find("content")->as_string();
  changed->set(Value::string("content"), Value::string(content.append(mark)));
  items[index] = jinja::make_dict(std::move(changed));
  return Value::list(std::move(items));
}

Result<Prompt> continued(const ChatTemplate& chat_template, PromptInput input) {
  static const std::string kField = "continue_final_message";
  const auto& messages = input.messages.items();
  if (messages.empty()) return refuse(kField, "needs a last message to continue");
  const jinja::Dict& last = messages.back().as<jinja::Dict>();
  if (last.find("role")->as_string() != "assistant" || last.find("tool_calls") != nullptr)
    return refuse(kField, "needs an assistant message without tool calls at the end of messages");
  input.messages = marked(input.messages, messages.size() - 1, kEndOfPrefill);
  TANDEM_ASSIGN(auto text, chat_template.render(input));
  const std::size_t end = text.rfind(kEndOfPrefill);
  if (end == std::string::npos)
    return refuse(kField, "cannot be used: this model's chat template does not print the last message");
  text.resize(end);

  // Only what stands behind the message before can open a thinking block that counts. A second rendering
  // tells where that is; the first cannot carry the mark, since it would keep blanks from being stripped.
  std::size_t behind = text.size();
  const std::size_t count = input.messages.items().size();
  if (count > 1) {
    input.messages = marked(input.messages, count - 2, kEndOfBefore);
    if (auto again = chat_template.render(input)) {
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

Result<Prompt> make_prompt(const ChatTemplate& chat_template, const ChatInput& input) {
  if (input.continue_final_message && input.add_generation_prompt)
    return refuse("continue_final_message", "and add_generation_prompt cannot both be true");
  PromptInput made{
      .messages = {}, .tools = {}, .variables = {}, .add_generation_prompt = input.add_generation_prompt};
  TANDEM_ASSIGN(made.messages, prepare_messages(input.messages));
  if (!input.tools.empty()) {
    TANDEM_ASSIGN(made.tools, to_value(input.tools));
  }
  for (const auto& member : input.variables) {
    TANDEM_ASSIGN(auto value, to_value(member.value()));
    made.variables.emplace_back(std::string(member.key()), std::move(value));
  }
  if (input.continue_final_message) return continued(chat_template, std::move(made));
  TANDEM_ASSIGN(auto text, chat_template.render(made));
  const bool inside = ends_inside_think(text);
  return Prompt{std::move(text), inside};
}

}  // namespace tandem::text
