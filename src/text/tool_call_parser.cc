#include "text/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "text/tool_call_markers.h"
#include "text/tool_call_values.h"

namespace tandem::text {

struct ToolCallParser::ValueEnd {
  Match match = Match::No;
  std::size_t bytes = 0;  // of the value's own closing mark, if it has one
};

ToolCallParser::ToolCallParser(const boost::json::array& tools) : schemas_(std::make_unique<ToolSchemas>(tools)) {}
ToolCallParser::~ToolCallParser() = default;
ToolCallParser::ToolCallParser(ToolCallParser&&) noexcept = default;

ToolCallParser::Piece ToolCallParser::push(std::string_view added) {
  Piece piece;
  held_ += added;
  bool more = !held_.empty();
  while (more) {
    switch (state_) {
      case State::Text: more = text(piece); break;
      case State::Parameters: more = parameters(piece); break;
      case State::Value: more = value(piece); break;
      case State::AfterFunction: more = after_function(piece); break;
    }
  }
  return piece;
}

ToolCallParser::Piece ToolCallParser::finish() {
  ended_ = true;
  Piece piece = push("");
  if (state_ == State::Text && !is_marker_trunk(held_)) {
    say(held_, piece);
    piece.text.append(line_breaks_, '\n');
  }
  held_.clear();
  line_breaks_ = 0;
  return piece;
}

bool ToolCallParser::text(Piece& piece) {
  if (after_call_) {
    held_.erase(0, space_bytes(held_));
    if (held_.empty()) return false;
    after_call_ = false;
  }
  const std::string_view all = held_;
  std::size_t at = 0;
  while (at < all.size()) {
    const std::size_t next = std::min(all.find_first_of("<\n", at), all.size());
    say(all.substr(at, next - at), piece);
    at = next;
    if (at == all.size()) break;
    if (all[at] == '\n') {
      ++line_breaks_;
      ++at;
      continue;
    }
    const MarkerMatch call = match_call_start(all.substr(at));
    if (call.match == Match::Unfinished) break;
    if (call.match == Match::Yes) {
      begin_call(call.name, piece);
      held_.erase(0, at + call.bytes);
      return true;
    }
    say("<", piece);
    ++at;
  }
  held_.erase(0, at);
  return false;
}

bool ToolCallParser::parameters(Piece& piece) {
  held_.erase(0, space_bytes(held_));
  if (held_.empty()) return false;
  const MarkerMatch parameter = match_named(held_, kParameterOpen);
  const MarkerMatch function_close = match_marker(held_, kFunctionClose);
  const MarkerMatch call_close = match_marker(held_, kCallClose);
  if (parameter.match == Match::Yes) {
    // One more character tells whether the value has lines of its own.
    if (parameter.bytes == held_.size() && !ended_) return false;
    begin_value(parameter.name, piece);
    held_.erase(0, parameter.bytes);
    by_lines_ = held_.starts_with('\n');
    held_.erase(0, by_lines_ ? 1 : 0);
    return true;
  }
  if (function_close.match == Match::Yes || call_close.match == Match::Yes) {
    end_call(piece);
    held_.erase(0, std::max(function_close.bytes, call_close.bytes));
    state_ = call_close.match == Match::Yes ? State::Text : State::AfterFunction;
    return true;
  }
  for (const MarkerMatch& match : {parameter, function_close, call_close}) {
    if (match.match == Match::Unfinished) return false;
  }
  // Text between the marks means nothing.
  held_.erase(0, std::min(held_.find('<', 1), held_.size()));
  return true;
}

bool ToolCallParser::value(Piece& piece) {
  const std::string_view all = held_;
  std::size_t at = 0;
  while (at < all.size()) {
    const bool line_break = all[at] == '\n';
    if (line_break || at_line_start_ || (!by_lines_ && all[at] == '<')) {
      const std::size_t mark = line_break ? at + 1 : at;
      const ValueEnd end = match_value_end(all.substr(mark));
      if (end.match == Match::Unfinished) break;
      if (end.match == Match::Yes) {
        end_value(piece);
        held_.erase(0, mark + end.bytes);
        return true;
      }
    }
    at_line_start_ = false;
    const std::size_t next = std::min(all.find_first_of(by_lines_ ? "\n" : "<\n", at + 1), all.size());
    add_to_value(all.substr(at, next - at), piece);
    at = next;
  }
  held_.erase(0, at);
  return false;
}

// Does the open value end before `text`, which stands where a closing mark counts?
ToolCallParser::ValueEnd ToolCallParser::match_value_end(std::string_view text) const {
  // What stands after a closing mark and white space decides; the end of the answer, too.
  const auto followed_by = [&](std::string_view rest, std::initializer_list<std::string_view> marks) {
    const std::size_t space = space_bytes(rest);
    if (space > kMostSpace) return Match::No;
    rest.remove_prefix(space);
    Match found = Match::No;
    for (const std::string_view mark : marks) {
      const Match match = match_marker(rest, mark).match;
      if (match == Match::Yes || (match == Match::Unfinished && ended_)) return Match::Yes;
      if (match == Match::Unfinished) found = Match::Unfinished;
    }
    return found;
  };

  const MarkerMatch close = match_marker(text, kParameterClose);
  if (close.match == Match::Yes)
    return {followed_by(text.substr(close.bytes), {kParameterOpen, kFunctionClose, kCallClose}), close.bytes};
  const MarkerMatch function_close = match_marker(text, kFunctionClose);
  if (function_close.match == Match::Yes) return {followed_by(text.substr(function_close.bytes), {kCallClose})};
  const MarkerMatch parameter = match_named(text, kParameterOpen);
  if (parameter.match == Match::Yes) {
    const std::string key(parameter.name);
    return {schemas_->declares(function_, key) && !keys_.contains(key) ? Match::Yes : Match::No};
  }
  for (const MarkerMatch& match : {close, function_close, parameter}) {
    if (match.match == Match::Unfinished) return {Match::Unfinished};
  }
  return {};
}

// After "</function>": the call's last mark, or another function within the same marks.
bool ToolCallParser::after_function(Piece& piece) {
  held_.erase(0, space_bytes(held_));
  if (held_.empty()) return false;
  const MarkerMatch close = match_marker(held_, kCallClose);
  const MarkerMatch function = match_named(held_, kFunctionOpen);
  if (function.match == Match::Yes) {
    begin_call(function.name, piece);
    held_.erase(0, function.bytes);
    return true;
  }
  if (close.match == Match::Unfinished || function.match == Match::Unfinished) return false;
  held_.erase(0, close.bytes);
  state_ = State::Text;
  return true;
}

void ToolCallParser::say(std::string_view added, Piece& piece) {
  if (added.empty()) return;
  piece.text.append(std::exchange(line_breaks_, 0), '\n');
  piece.text += added;
}

void ToolCallParser::begin_call(std::string_view name, Piece& piece) {
  line_breaks_ = 0;
  function_ = name;
  keys_.clear();
  has_arguments_ = false;
  is_open_ = true;
  piece.calls.push_back({.index = calls_++, .name = function_});
  state_ = State::Parameters;
}

void ToolCallParser::end_call(Piece& piece) {
  give(has_arguments_ ? "}" : "{}", piece);
  is_open_ = false;
  after_call_ = true;
}

void ToolCallParser::begin_value(std::string_view key, Piece& piece) {
  key_ = key;
  ignored_ = !keys_.insert(key_).second;
  streams_ = !ignored_ && schemas_->types(function_, key_).only_string();
  value_.clear();
  at_line_start_ = true;
  if (streams_) {
    write_key(piece);
    give("\"", piece);
  }
  state_ = State::Value;
}

void ToolCallParser::add_to_value(std::string_view added, Piece& piece) {
  if (streams_) {
    give(json_escaped(added), piece);
  } else if (!ignored_) {
    value_ += added;
  }
}

void ToolCallParser::end_value(Piece& piece) {
  if (streams_) {
    give("\"", piece);
  } else if (!ignored_) {
    write_key(piece);
    give(value_as_json(value_, schemas_->types(function_, key_)), piece);
  }
  state_ = State::Parameters;
}

void ToolCallParser::write_key(Piece& piece) {
  give(has_arguments_ ? ",\"" : "{\"", piece);
  give(json_escaped(key_), piece);
  give("\":", piece);
  has_arguments_ = true;
}

void ToolCallParser::give(std::string_view arguments, Piece& piece) {
  const int index = calls_ - 1;
  if (piece.calls.empty() || piece.calls.back().index != index) piece.calls.push_back({.index = index});
  piece.calls.back().arguments += arguments;
}

}  // namespace tandem::text
