#pragma once

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tandem::text {

class ToolSchemas;  // tool_call_values.h

// Finds the tool calls in an answer's content (Qwen3.5's marks, tool_call_markers.h) while it comes.
// The joined output does not depend on where the pieces end.
//
// What is a call: "<tool_call>", "<function=NAME>". Anything less is text and passes unchanged. NAME
// need not be one of the tools. Line breaks before a call and white space after one are dropped.
//
// Where a value ends: at "</parameter>" if the next mark, after white space at most, is "<parameter=",
// "</function>" or "</tool_call>"; at "<parameter=KEY>" if the tool declares KEY and the call does not
// have it yet; at "</function>" if "</tool_call>" or the end of the answer follows. Each counts only
// at the beginning of a line, unless the value itself began on the line of its opening mark. One line
// break at either end of a value belongs to the marks. Nothing else is trimmed or decoded.
//
// What a value is: the tool's JSON schema says (tool_call_values.h). Values of type string come out
// piece by piece; others when they are complete. Of two values for one KEY the first counts.
//
// An answer that ends inside a call leaves the call's arguments a beginning of JSON, and
// `unfinished_call` says so; a piece of a mark at the end is dropped.
//
// Thread: one at a time. Time: linear.
class ToolCallParser {
 public:
  // `tools` as in an OpenAI request: [{"type": "function", "function": {"name", "parameters"}}].
  // Used during the call only.
  explicit ToolCallParser(const boost::json::array& tools);
  ~ToolCallParser();
  ToolCallParser(ToolCallParser&&) noexcept;

  struct CallDelta {
    int index = 0;          // counts the answer's calls from 0
    std::string name;       // with the first delta of a call, else empty
    std::string arguments;  // JSON text, to be appended
  };
  struct Piece {
    std::string text;  // content; it stands before the calls of this piece, or after earlier ones
    std::vector<CallDelta> calls;
  };
  [[nodiscard]] Piece push(std::string_view text);

  // The answer has ended: what was held back, if it is to be shown.
  [[nodiscard]] Piece finish();

  [[nodiscard]] int calls() const { return calls_; }              // begun so far
  [[nodiscard]] bool unfinished_call() const { return is_open_; }  // the last call has not ended

 private:
  enum class State { Text, Parameters, Value, AfterFunction };

  // Each takes what it can from the beginning of `held_`; false if it needs more text.
  bool text(Piece& piece);
  bool parameters(Piece& piece);
  bool value(Piece& piece);
  bool after_function(Piece& piece);

  struct ValueEnd;
  [[nodiscard]] ValueEnd match_value_end(std::string_view text) const;

  void say(std::string_view text, Piece& piece);
  void begin_call(std::string_view name, Piece& piece);
  void end_call(Piece& piece);
  void begin_value(std::string_view key, Piece& piece);
  void add_to_value(std::string_view text, Piece& piece);
  void end_value(Piece& piece);
  void write_key(Piece& piece);
  void give(std::string_view arguments, Piece& piece);

  std::unique_ptr<const ToolSchemas> schemas_;
  State state_ = State::Text;
  std::string held_;
  bool ended_ = false;           // no more text comes
  bool after_call_ = false;      // nothing but white space came since the last call
  std::size_t line_breaks_ = 0;  // seen in the content and not given out: a call may follow
  int calls_ = 0;
  bool is_open_ = false;
  std::string function_;                  // the open call's
  std::unordered_set<std::string> keys_;  // that it has
  bool has_arguments_ = false;            // some were given out
  std::string key_;                       // of the open value
  bool by_lines_ = false;                 // the open value began on its own line
  bool at_line_start_ = false;
  bool streams_ = false;                  // the open value is a string and comes out as it comes in
  bool ignored_ = false;                  // its key came before
  std::string value_;                     // of a value that does not stream
};

}  // namespace tandem::text
