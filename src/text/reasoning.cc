#include "text/reasoning.h"

#include <algorithm>
#include <utility>

#include "text/tool_call_markers.h"

namespace tandem::text {

ReasoningSplitter::Piece ReasoningSplitter::push(std::string_view text) {
  Piece piece;
  held_ += text;
  bool more = !held_.empty();
  while (more) {
    switch (state_) {
      case State::Start: more = start(); break;
      case State::Reasoning: more = reasoning(piece); break;
      case State::AfterReasoning: more = after_reasoning(); break;
      case State::Content:
        piece.content += std::exchange(held_, {});
        more = false;
        break;
    }
  }
  return piece;
}

bool ReasoningSplitter::start() {
  const MarkerMatch open = match_marker(held_, kThinkOpen);
  if (open.match == Match::Unfinished) return false;
  held_.erase(0, open.bytes);
  state_ = options_.inside || open.match == Match::Yes ? State::Reasoning : State::Content;
  return true;
}

bool ReasoningSplitter::reasoning(Piece& piece) {
  const std::string_view text = held_;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t next = std::min(text.find_first_of("<\n", at), text.size());
    say(text.substr(at, next - at), piece);
    at = next;
    if (at == text.size()) break;
    if (text[at] == '\n') {
      line_breaks_ += has_reasoning_ ? 1 : 0;
      ++at;
      continue;
    }
    const MarkerMatch close = match_marker(text.substr(at), kThinkClose);
    const MarkerMatch call = options_.tool_calls_end_reasoning ? match_call_start(text.substr(at)) : MarkerMatch{};
    if (close.match == Match::Yes || call.match == Match::Yes) {
      state_ = close.match == Match::Yes ? State::AfterReasoning : State::Content;
      line_breaks_ = 0;
      held_.erase(0, at + (close.match == Match::Yes ? close.bytes : 0));
      return true;
    }
    if (close.match == Match::Unfinished || call.match == Match::Unfinished) break;
    say("<", piece);
    ++at;
  }
  held_.erase(0, at);
  return false;
}

bool ReasoningSplitter::after_reasoning() {
  held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
  if (held_.empty()) return false;
  state_ = State::Content;
  return true;
}

void ReasoningSplitter::say(std::string_view text, Piece& piece) {
  if (text.empty()) return;
  piece.reasoning.append(std::exchange(line_breaks_, 0), '\n');
  piece.reasoning += text;
  has_reasoning_ = true;
}

ReasoningSplitter::Piece ReasoningSplitter::finish() {
  Piece piece;
  if (!is_marker_trunk(held_)) {
    if (state_ == State::Reasoning || (state_ == State::Start && options_.inside)) {
      say(held_, piece);
    } else {
      piece.content = held_;
    }
  }
  held_.clear();
  line_breaks_ = 0;
  return piece;
}

}  // namespace tandem::text
