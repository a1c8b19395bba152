#include "server/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/http_message.h"
#include "server/tool_fields.h"

namespace tandem::server {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// A string, or the joined texts of a list of text parts.
std::optional<std::string> read_content(Fields& message) {
  const json::value* content = message.any("content");
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array()) {
    message.fail("content", fmt::format("{} must be a string or a list of text parts, got {}.",
                                        message.full("content"), shown_value(*content)));
    return std::nullopt;
  }
  if (content->get_array().empty()) {
    message.fail("content", message.full("content") + " is an empty list; it needs at least one text part.");
    return std::nullopt;
  }
  std::string joined;
  std::size_t index = 0;
  for (const json::value& part : content->get_array()) {
    const std::string name = fmt::format("content[{}]", index++);
    if (!part.is_object()) {
      message.fail(name, fmt::format("{} must be an object with type and text, got {}.", message.full(name), shown_value(part)));
      return std::nullopt;
    }
    Fields fields(part.get_object(), message.full(name) + ".");
    const auto type = fields.string("type");
    if (fields.ok() && type != "text") {
      fields.fail("type", fmt::format("{}: parts of type {} are not supported; this model reads text only.",
                                      fields.full("type"), type ? '"' + shown(*type, 60) + '"' : "null"),
                  "unsupported_value");
    }
    const auto text = fields.string("text");
    if (fields.ok() && !text) fields.fail("text", fields.full("text") + " is missing.");
    fields.refuse_the_rest("A text part has type and text.");
    if (fields.error()) {
      message.fail(*fields.error());
      return std::nullopt;
    }
    joined += *text;
  }
  return joined;
}

json::object read_message(const json::object& object, const std::string& prefix, std::optional<ApiError>& error) {
  static constexpr std::array<std::string_view, 3> kIgnored = {"id", "name", "refusal"};
  static constexpr std::array<OnlyDefault, 2> kOnly = {{
      {"annotations", "[]", ""},
      {"partial", "false", "continue_final_message continues the last message."},
  }};
  Fields fields(object, prefix);
  json::object out;
  const std::string role = fields.string("role").value_or("");
  if (fields.ok() && std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    fields.fail("role", fmt::format("{} must be system, developer, user, assistant or tool, got {}.", fields.full("role"),
                                    role.empty() ? "none" : '"' + shown(role, 60) + '"'));
  }
  out["role"] = role == "developer" ? "system" : role;

  const auto content = read_content(fields);
  // Read by the template for the assistant only; elsewhere it cannot change the prompt.
  const auto reasoning = fields.string("reasoning_content");
  if (role == "assistant") {
    if (reasoning) out["reasoning_content"] = *reasoning;
    if (const json::array* calls = fields.array("tool_calls"); calls != nullptr && !calls->empty()) {
      out["tool_calls"] = read_tool_calls(fields, *calls);
    }
  }
  if (role == "tool") {
    if (const auto id = fields.string("tool_call_id")) out["tool_call_id"] = *id;
  }
  const bool may_lack_content = out.contains("tool_calls") || out.contains("reasoning_content") ||
                                (role == "assistant" && object.contains("refusal"));
  if (fields.ok() && !content && !may_lack_content) {
    fields.fail("content", fields.full("content") + " is missing; it must be a string or a list of text parts.");
  }
  out["content"] = content.value_or("");

  fields.ignore(kIgnored);
  fields.only_default(kOnly);
  fields.refuse_the_rest(fmt::format("docs/api.md lists the fields of a message of role {}.", role.empty() ? "none" : role));
  error = fields.error();
  return out;
}

void read_messages(Fields& fields, json::array& out) {
  const json::array* messages = fields.array("messages");
  if (!fields.ok()) return;
  if (messages == nullptr || messages->empty()) {
    return fields.fail("messages", "messages must hold at least one message.");
  }
  bool leading = true;  // still among the first system messages
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string name = fmt::format("messages[{}]", i);
    const json::value& value = (*messages)[i];
    if (!value.is_object()) {
      return fields.fail(name, fmt::format("{} must be an object with role and content, got {}.", name, shown_value(value)));
    }
    std::optional<ApiError> error;
    json::object message = read_message(value.get_object(), name + ".", error);
    if (error) return fields.fail(std::move(*error));
    const bool system = message["role"].get_string() == "system";
    if (system && leading && !out.empty()) {
      json::string& merged = out.back().get_object()["content"].get_string();
      merged.append("\n\n");
      merged.append(message["content"].get_string());
      continue;
    }
    leading = leading && system;
    out.push_back(std::move(message));
  }
}

void read_template_variables(Fields& fields, const PromptText& text, json::object& out) {
  static constexpr std::array<std::string_view, 6> kReserved = {
      "messages", "tools", "add_generation_prompt", "chat_template", "documents", "continue_final_message"};
  const json::object* variables = fields.object("chat_template_kwargs");
  if (variables == nullptr) return;
  for (const auto& member : *variables) {
    const std::string_view name(member.key().data(), member.key().size());
    const std::string full = "chat_template_kwargs." + shown(name, 60);
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      return fields.fail(full, full + " cannot be set here; the server fills it from the request.", "unsupported_field");
    }
    if (member.value().is_null()) continue;
    if (!text.template_reads(name)) {
      return fields.fail(full, full + " is not read by this model's chat template.", "unknown_field");
    }
    const bool is_switch = name.starts_with("enable_") || name.starts_with("preserve_");
    if (is_switch && !member.value().is_bool()) {
      return fields.fail(full, fmt::format("{} must be true or false, got {}.", full, shown_value(member.value())));
    }
    out[member.key()] = member.value();
  }
}

void read_continuation(Fields& fields, text::Conversation& out) {
  const auto add = fields.boolean("add_generation_prompt");
  out.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  out.add_generation_prompt = add.value_or(!out.continue_final_message);
}

}  // namespace

void read_conversation(Fields& fields, const PromptText& text, text::Conversation& out) {
  read_messages(fields, out.messages);
  read_tools(fields, out.tools);
  read_template_variables(fields, text, out.variables);
  read_continuation(fields, out);
}

tl::expected<text::Prompt, ApiError> render_prompt(const PromptText& text, const text::Conversation& conversation) {
  if (!text.has_template()) {
    return tl::unexpected(bad_field("messages", "This model has no chat template; use /v1/completions.", "unsupported_value"));
  }
  auto prompt = text::make_prompt([&](const text::Conversation& part) { return text.render(part); }, conversation);
  if (prompt) return std::move(*prompt);
  const Error& error = prompt.error();
  if (error.field == "continue_final_message") return tl::unexpected(bad_field(error.field, error.message));
  return tl::unexpected(bad_field("messages", "The chat template refuses: " + error.message, "chat_template_error"));
}

}  // namespace tandem::server
