#include "cli/chat/session.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/read_file.h"
#include "cli/chat/harmless.h"
#include "ops/sampling_ranges.h"

namespace tandem::cli::chat {

namespace json = boost::json;

// The bounds are the API's (ops/sampling_ranges.h), so that no setting is refused by the server that it is sent to; a
// seed is one that a double holds exactly.
const std::map<std::string, Range>& setting_ranges() {
  static const std::map<std::string, Range> ranges = [] {
    std::map<std::string, Range> all = {{"seed", {0, 9007199254740991.0, true}}, {"top_k", {-1, 1e6, true}}};
    for (const ops::NumberRange& range : {ops::kTemperature, ops::kTopP, ops::kMinP, ops::kRepetitionPenalty, ops::kPresencePenalty, ops::kFrequencyPenalty})
      all.emplace(range.name, Range{range.least, range.most, false});
    all.emplace(ops::kMaxTokens.name, Range{static_cast<double>(ops::kMaxTokens.least), static_cast<double>(ops::kMaxTokens.most), true});
    return all;
  }();
  return ranges;
}

namespace {

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

}  // namespace

void Session::tell(const std::string& said) const {
  const std::string text = harmless(said);
  put(terminal_.colours() ? fmt::format("\x1b[2m{}\x1b[0m\n", text) : text + "\n");
}

void Session::refuse(const std::string& said) {
  const std::string text = harmless(said);
  failed_ = true;
  std::fflush(stdout);
  std::fputs((terminal_.colours() ? fmt::format("\x1b[31m{}\x1b[0m\n", text) : text + "\n").c_str(), stderr);
}

int Session::run() {
  if (terminal_.interactive()) tell(fmt::format("{}. Enter sends, Alt+Enter makes a new line, Ctrl-C stops an answer, /help lists commands.", answerer_.name()));
  for (;;) {
    const auto message = terminal_.read_message(terminal_.interactive() ? "> " : "");
    if (!message) break;
    const std::string line = trim(*message);
    if (line.empty()) continue;
    if (line[0] == '/' && line.find('\n') == std::string::npos) {
      if (!command(line)) break;
      continue;
    }
    messages_.push_back({{"role", "user"}, {"content", *message}});
    ask();
  }
  return failed_ && !terminal_.interactive() ? 1 : 0;
}

bool Session::command(const std::string& line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space), rest = trim(line.substr(space));
  if (name == "/quit" || name == "/exit") return false;
  if (name == "/help") {
    help();
  } else if (name == "/system") {
    if (!rest.empty()) system_ = rest == "none" ? "" : rest;
    tell(system_.empty() ? "There is no system prompt." : "System prompt: " + system_);
  } else if (name == "/reset") {
    messages_.clear();
    tell("The conversation begins anew.");
  } else if (name == "/retry") {
    retry();
  } else if (name == "/settings") {
    rest.empty() ? show_settings() : change_setting(rest);
  } else if (name == "/save" || name == "/load") {
    const Result<void> done = rest.empty() ? Result<void>(fail(ErrorKind::Invalid, name + " needs a file's name"))
                                           : name == "/save" ? save(rest) : load(rest);
    if (!done) refuse(done.error().message);
    else tell(fmt::format("{} messages {} {}", messages_.size(), name == "/save" ? "saved to" : "loaded from", rest));
  } else {
    refuse(fmt::format("There is no {}; /help lists the commands. A message that begins with / needs a space before it.", name));
  }
  return true;
}

void Session::help() const {
  tell("/system [TEXT|none]        show or set the system prompt\n"
       "/settings [NAME VALUE]     show or change a setting; VALUE default restores it\n"
       "/retry                     answer the last message again\n"
       "/reset                     forget the conversation\n"
       "/save FILE, /load FILE     the conversation as JSON\n"
       "/quit                      end (also Ctrl-D)\n"
       "Enter sends; Alt+Enter, Ctrl-J or a backslash at the end make a new line; arrows edit and leaf through\n"
       "earlier messages; Ctrl-C stops an answer.");
}

void Session::show_settings() const {
  std::string text = fmt::format("thinking {}", settings_.thinking ? "on" : "off");
  for (const auto& [name, range] : setting_ranges()) {
    const auto found = settings_.numbers.find(name);
    text += found == settings_.numbers.end() ? fmt::format("\n{} default", name) : fmt::format("\n{} {}", name, found->second);
  }
  tell(text);
}

void Session::change_setting(const std::string& rest) {
  const std::size_t space = std::min(rest.find_first_of(" ="), rest.size());
  const std::string name = rest.substr(0, space), value = trim(rest.substr(std::min(space + 1, rest.size())));
  if (name == "thinking") {
    if (value != "on" && value != "off") return refuse("thinking is on or off");
    settings_.thinking = value == "on";
    return tell("thinking " + value);
  }
  const auto range = setting_ranges().find(name);
  if (range == setting_ranges().end()) {
    std::string names = "thinking";
    for (const auto& [other, ignored] : setting_ranges()) names += ", " + other;
    return refuse(fmt::format("There is no setting '{}'; there are {}", name, names));
  }
  if (value == "default") {
    settings_.numbers.erase(name);
    return tell(name + " default");
  }
  double number = 0;
  const auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), number);
  const auto [low, high, integer] = range->second;
  if (bad != std::errc() || end != value.data() + value.size() || !(number >= low && number <= high) || (integer && number != std::floor(number)))
    return refuse(fmt::format("{} = '{}'; {} from {} to {} works, or default", name, value, integer ? "a whole number" : "a number", low, high));
  settings_.numbers[name] = number;
  tell(fmt::format("{} {}", name, number));
}

void Session::retry() {
  json::array before = messages_;
  if (!messages_.empty() && messages_.back().at("role").as_string() == "assistant") messages_.pop_back();
  const bool asked = !messages_.empty();
  if (!asked) refuse("There is no message to answer.");
  if (!asked || !ask()) messages_ = std::move(before);
}

Result<void> Session::save(const std::string& file) const {
  json::object all{{"system", system_}, {"messages", messages_}};
  std::ofstream out(file);
  out << json::serialize(all) << "\n";
  out.close();  // a full disk shows here
  if (!out) return fail(ErrorKind::Io, "cannot write " + file);
  return {};
}

Result<void> Session::load(const std::string& file) {
  TANDEM_ASSIGN(const std::string text, read_file(file));
  boost::system::error_code bad;
  const json::value value = json::parse(text, bad);
  const auto wrong = [&file] { return fail(ErrorKind::Invalid, file + " is no conversation: {\"system\": ..., \"messages\": [{\"role\": ..., \"content\": ...}, ...]}"); };
  if (bad || !value.is_object()) return wrong();
  const json::value* const messages = value.as_object().if_contains("messages");
  const json::value* const system = value.as_object().if_contains("system");
  if (!messages || !messages->is_array() || (system && !system->is_string())) return wrong();
  for (const json::value& message : messages->as_array()) {
    if (!message.is_object()) return wrong();
    const json::value* const role = message.as_object().if_contains("role");
    const json::value* const content = message.as_object().if_contains("content");
    if (!role || !role->is_string() || !content || !content->is_string()) return wrong();
  }
  messages_ = messages->as_array();
  system_ = system ? std::string(system->as_string()) : "";
  return {};
}

bool Session::ask() {
  json::array all;
  if (!system_.empty()) all.push_back({{"role", "system"}, {"content", system_}});
  all.insert(all.end(), messages_.begin(), messages_.end());
  std::string text;
  bool thinking = false;
  const auto begin = std::chrono::steady_clock::now();
  auto first = begin;
  const auto say = [&](const std::string& thought, const std::string& piece) {
    if (first == begin) first = std::chrono::steady_clock::now();
    if (!thought.empty()) {
      if (!thinking) put(terminal_.colours() ? "\x1b[2;3m" : "[thinking] ");
      thinking = true;
      put(harmless(thought));
    }
    if (piece.empty()) return;
    if (thinking) put(terminal_.colours() ? "\x1b[0m\n\n" : "\n\n");
    thinking = false;
    std::string shown = piece;
    if (text.empty()) shown.erase(0, std::min(shown.find_first_not_of(" \n"), shown.size()));
    text += shown;
    put(harmless(shown));
  };
  g_interrupted = false;
  const Result<Ending> ending = answerer_.answer(all, settings_, say, g_interrupted);
  if (thinking && terminal_.colours()) put("\x1b[0m");
  if (thinking || !text.empty()) put("\n");
  if (!text.empty()) messages_.push_back({{"role", "assistant"}, {"content", text}});
  if (!ending) {
    if (text.empty()) messages_.pop_back();  // the question may be asked in other words
    refuse(ending.error().message);
    return false;
  }
  if (terminal_.interactive()) tell_ending(*ending, std::chrono::duration<double>(std::chrono::steady_clock::now() - first).count());
  return !text.empty();
}

void Session::tell_ending(const Ending& ending, double seconds) const {
  if (ending.reason == "interrupted") return tell("(stopped)");
  std::string line;
  if (ending.completion_tokens > 0) line = fmt::format("{} tokens", ending.completion_tokens);
  if (ending.completion_tokens > 4 && seconds > 0) line += fmt::format(", {:.1f} a second", (ending.completion_tokens - 1) / seconds);
  if (ending.reason == "length") line += line.empty() ? "cut by the limit" : ", cut by the limit";
  if (!line.empty()) tell("(" + line + ")");
}

}  // namespace tandem::cli::chat
