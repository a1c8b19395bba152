#include "cli/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/read_file.h"

namespace tandem::cli {
namespace {

constexpr char kFlag[] = "config";

[[noreturn]] void refuse(const std::filesystem::path& file, std::uint32_t line, std::string_view what) {
  const std::string where = line > 0 ? fmt::format("{}:{}", file.string(), line) : file.string();
  throw CLI::ParseError(fmt::format("[config] {}: {}", where, what), CLI::ExitCodes::ConfigError);
}

// As it would stand on the command line; nothing for what no flag takes.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  return std::nullopt;
}

void apply(CLI::App& command, const std::filesystem::path& file, const std::string& name, const toml::node& node) {
  const std::uint32_t line = node.source().begin.line;
  CLI::Option* option = command.get_option_no_throw("--" + name);
  if (option == nullptr) option = command.get_option_no_throw(name);  // a positional
  if (option == nullptr || name == kFlag || name == "help") {
    refuse(file, line, fmt::format("'{}' is no flag of {} that a file may hold; tandem {} --help lists them", name, command.get_name(), command.get_name()));
  }
  if (option->count() > 0) return;  // given on the command line or in the environment
  const bool is_switch = option->get_expected_min() == 0;
  std::vector<std::string> values;
  if (is_switch) {
    const auto* on = node.as_boolean();
    if (on == nullptr) refuse(file, line, fmt::format("{} is true or false", name));
    values.push_back(on->get() ? "true" : "false");
  } else if (const auto* several = node.as_array()) {
    if (option->get_items_expected_max() < 2) refuse(file, line, fmt::format("{} takes one value, not an array", name));
    for (const toml::node& one : *several) {
      if (const auto text = text_of(one)) values.push_back(*text);
      else refuse(file, line, fmt::format("{} takes an array of strings or numbers", name));
    }
  } else if (const auto text = text_of(node)) {
    values.push_back(*text);
  } else {
    refuse(file, line, fmt::format("{} takes a string or a number", name));
  }
  try {
    option->add_result(values);
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    refuse(file, line, error.what());
  }
}

}  // namespace

void apply_config(CLI::App& command, const std::filesystem::path& file) {
  const auto text = read_file(file, {.most_bytes = 1 << 20, .may_be_empty = true});
  if (!text) throw CLI::ParseError("[config] " + text.error().message, CLI::ExitCodes::ConfigError);
  toml::table table;
  try {
    table = toml::parse(*text, file.string());
  } catch (const toml::parse_error& error) {
    refuse(file, error.source().begin.line, error.description());
  }
  for (const auto& [name, node] : table) apply(command, file, std::string(name.str()), node);
}

void add_config_flag(CLI::App& command) {
  const auto file = std::make_shared<std::string>();
  command.add_option(std::string("--") + kFlag, *file, "Read flags from a TOML file; the command line and the environment win");
  command.parse_complete_callback([file, &command] {
    if (!file->empty()) apply_config(command, *file);
  });
}

}  // namespace tandem::cli
