#include "server/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/http_message.h"

namespace tandem::server {
namespace {

constexpr std::size_t kMaxTools = 1024;

bool good_function_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

void read_tool(Fields& fields, const json::value& value, const std::string& name) {
  if (!value.is_object()) {
    return fields.fail(name, fmt::format("{} must be an object with type and function, got {}.", name, shown_value(value)));
  }
  Fields tool(value.get_object(), name + ".");
  const auto type = tool.string("type");
  if (tool.ok() && type != "function") {
    tool.fail("type", fmt::format("{} must be \"function\", got {}.", tool.full("type"), type ? '"' + shown(*type, 60) + '"' : "none"),
              "unsupported_value");
  }
  const json::object* function = tool.object("function");
  if (tool.ok() && function == nullptr) tool.fail("function", tool.full("function") + " is missing.");
  tool.refuse_the_rest("A tool has type and function.");
  if (tool.error()) return fields.fail(*tool.error());

  Fields inner(*function, name + ".function.");
  const auto function_name = inner.string("name");
  if (inner.ok() && !good_function_name(function_name.value_or(""))) {
    inner.fail("name", fmt::format("{} must have 1 to 128 of the characters a-z, A-Z, 0-9, '_', '-' and '.', got \"{}\".",
                                   inner.full("name"), shown(function_name.value_or(""), 60)));
  }
  (void)inner.string("description");
  (void)inner.object("parameters");
  static constexpr std::array<OnlyDefault, 1> kOnly = {{{"strict", "false", "Arguments are not constrained to the schema."}}};
  inner.only_default(kOnly);
  inner.refuse_the_rest("A function has name, description and parameters.");
  if (inner.error()) fields.fail(*inner.error());
}

// Is the named function one of `tools`? They are checked already.
bool offered(const json::array* tools, std::string_view name) {
  if (tools == nullptr) return false;
  return std::any_of(tools->begin(), tools->end(), [&](const json::value& tool) {
    return tool.at("function").at("name").get_string() == name;
  });
}

}  // namespace

void read_tools(Fields& fields, json::array& tools) {
  const json::array* given = fields.array("tools");
  if (given != nullptr) {
    if (given->size() > kMaxTools) {
      return fields.fail("tools", fmt::format("tools holds {} tools; at most {} work.", given->size(), kMaxTools));
    }
    for (std::size_t i = 0; i < given->size() && fields.ok(); ++i) read_tool(fields, (*given)[i], fmt::format("tools[{}]", i));
  }
  const bool any = given != nullptr && !given->empty();
  const json::value* choice = fields.any("tool_choice");
  if (!fields.ok()) return;
  bool allowed = true;
  if (choice != nullptr && choice->is_string()) {
    const std::string_view word(choice->get_string().data(), choice->get_string().size());
    if (word == "none") {
      allowed = false;
    } else if (word == "required") {
      return fields.fail("tool_choice", any ? "tool_choice \"required\" is not supported; use \"auto\" or \"none\"."
                                            : "tool_choice \"required\" needs tools, and is not supported; use \"auto\".",
                         "unsupported_value");
    } else if (word != "auto") {
      return fields.fail("tool_choice", fmt::format("tool_choice must be \"auto\" or \"none\", got {}.", shown_value(*choice)));
    }
  } else if (choice != nullptr) {
    const json::object* object = choice->is_object() ? &choice->get_object() : nullptr;
    const json::value* function = object ? object->if_contains("function") : nullptr;
    const json::value* name = function && function->is_object() ? function->get_object().if_contains("name") : nullptr;
    if (name == nullptr || !name->is_string()) {
      return fields.fail("tool_choice", fmt::format("tool_choice must be \"auto\" or \"none\", got {}.", shown_value(*choice)));
    }
    const std::string_view wanted(name->get_string().data(), name->get_string().size());
    return fields.fail("tool_choice",
                       offered(given, wanted)
                           ? "tool_choice with a named function is not supported; use \"auto\" or \"none\"."
                           : fmt::format("tool_choice names the function \"{}\", which is not in tools.", shown(wanted, 60)),
                       "unsupported_value");
  }
  if (any && allowed) tools = *given;
}

json::array read_tool_calls(Fields& message, const json::array& calls) {
  json::array out;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string name = fmt::format("tool_calls[{}]", i);
    if (!calls[i].is_object()) {
      message.fail(name, fmt::format("{} must be an object, got {}.", message.full(name), shown_value(calls[i])));
      return out;
    }
    Fields call(calls[i].get_object(), message.full(name) + ".");
    const auto id = call.string("id");
    const auto type = call.string("type").value_or("function");
    if (call.ok() && type != "function") {
      call.fail("type", fmt::format("{} must be \"function\", got \"{}\".", call.full("type"), shown(type, 60)), "unsupported_value");
    }
    const json::object* function = call.object("function");
    if (call.ok() && function == nullptr) call.fail("function", call.full("function") + " is missing.");
    static constexpr std::array<std::string_view, 1> kIgnored = {"index"};
    call.ignore(kIgnored);
    call.refuse_the_rest("A tool call has id, type and function.");
    if (call.error()) {
      message.fail(*call.error());
      return out;
    }
    Fields inner(*function, message.full(name) + ".function.");
    const auto function_name = inner.string("name");
    if (inner.ok() && function_name.value_or("").empty()) inner.fail("name", inner.full("name") + " is missing.");
    json::value arguments = json::object();
    // On the wire a JSON text, which stays one: the template reads it exactly. An object is taken as well.
    // "" is how some clients write no arguments.
    if (const json::value* given = inner.any("arguments")) {
      if (given->is_object()) {
        arguments = *given;
      } else if (given->is_string() && !given->get_string().empty()) {
        auto parsed = parse_json({given->get_string().data(), given->get_string().size()});
        if (parsed && parsed->is_object()) {
          arguments = *given;
        } else {
          inner.fail("arguments", fmt::format("{} must be the text of a JSON object, got {}.", inner.full("arguments"), shown_value(*given)));
        }
      } else if (!given->is_string()) {
        inner.fail("arguments", fmt::format("{} must be the text of a JSON object, got {}.", inner.full("arguments"), shown_value(*given)));
      }
    }
    inner.refuse_the_rest("A call's function has name and arguments.");
    if (inner.error()) {
      message.fail(*inner.error());
      return out;
    }
    json::object made{{"type", "function"},
                      {"function", json::object{{"name", *function_name}, {"arguments", std::move(arguments)}}}};
    if (id) made["id"] = *id;
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace tandem::server
