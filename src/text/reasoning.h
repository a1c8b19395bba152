#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::text {

// Splits an answer into what the model thought and what it says, piece by piece; the joined output
// does not depend on where the pieces end.
//
// Rules. An answer that begins inside the thinking block (the prompt ends with "<think>") is reasoning
// up to "</think>", then content; one that begins outside is content, unless its very first characters
// are "<think>". A "<think>" at the very start is never shown. Later marks are text. Line breaks at
// both ends of the reasoning and at the start of the content after it are dropped. When tool calls are
// understood, a tool call's first line ("<tool_call>", "<function=NAME>") ends the reasoning too, and
// stays in the content. If the answer ends inside a mark, the piece of it is dropped, except for "<"
// and "</" alone.
//
// Thread: one at a time. Time: linear.
class ReasoningSplitter {
 public:
  struct Options {
    bool inside = false;               // the answer begins inside the thinking block
    bool tool_calls_end_reasoning = false;
  };
  explicit ReasoningSplitter(Options options) : options_(options) {}

  struct Piece {
    std::string reasoning;
    std::string content;
  };
  [[nodiscard]] Piece push(std::string_view text);

  // The answer has ended: what was held back, if it is to be shown.
  [[nodiscard]] Piece finish();

  // Bytes pushed that are neither given out nor dropped yet.
  [[nodiscard]] std::size_t held_bytes() const { return held_.size() + line_breaks_; }

  [[nodiscard]] bool in_reasoning() const { return state_ == State::Reasoning; }

 private:
  enum class State { Start, Reasoning, AfterReasoning, Content };

  // Each takes what it can from the beginning of `held_`; false if it needs more text.
  bool start();
  bool reasoning(Piece& piece);
  bool after_reasoning();
  void say(std::string_view text, Piece& piece);

  Options options_;
  State state_ = State::Start;
  std::string held_;
  std::size_t line_breaks_ = 0;  // seen in the reasoning and not given out: they may be its end
  bool has_reasoning_ = false;   // something was given out as reasoning
};

}  // namespace tandem::text
