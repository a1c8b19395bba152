#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "cli/chat/line_buffer.h"

namespace tandem::cli::chat {

// Set by SIGINT (Ctrl-C outside of read_message) and read by whoever gives an answer.
extern std::atomic<bool> g_interrupted;
// From now on SIGINT sets g_interrupted and ends blocking reads; nothing else. A new size of the terminal (SIGWINCH)
// interrupts nothing but a Terminal that waits for a key. Before any other thread starts.
void catch_interrupts();

class RawMode;  // in terminal.cc

// Where messages are typed. On a terminal: a line editor with history; Enter sends, Alt+Enter, Ctrl-J or a
// pasted line break makes a new line, a backslash at the end too; Ctrl-C empties the line, Ctrl-D on an
// empty one ends, Ctrl-Z stops the process until `fg`. When the terminal gets another size the message is drawn
// anew. Keys that come while nobody reads, as during an answer, are neither shown nor changed and wait for
// read_message; only Ctrl-C, Ctrl-Z and Ctrl-\ act at once. Elsewhere: plain lines; a backslash at a line's end joins
// the next one.
//
// Thread: one. The terminal is unlike it was while this lives; a process that a signal ends or stops leaves it as
// it was.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;

  [[nodiscard]] bool interactive() const { return interactive_; }
  [[nodiscard]] bool colours() const { return colours_; }

  // Nothing: the input has ended.
  [[nodiscard]] std::optional<std::string> read_message(const std::string& prompt);

 private:
  [[nodiscard]] std::optional<std::string> read_plain();
  [[nodiscard]] std::optional<std::string> read_edited(const std::string& prompt);
  // False: nothing was typed, but the message must be drawn again.
  [[nodiscard]] bool wait_for_key();
  [[nodiscard]] int read_byte();
  [[nodiscard]] std::string read_character(int first);
  [[nodiscard]] std::string read_paste();
  // Of an escape sequence: its parameters and last byte, as "A", "1;5C", "200~"; "\r" for Alt+Enter.
  [[nodiscard]] std::string read_escape();
  // While it is typed, at most as much of a message as fits the terminal, round the cursor: what has left
  // the screen cannot be drawn over.
  enum class Part { Window, Whole };
  void draw(const std::string& prompt, Part part);
  void begin_drawing();
  void leaf(const std::string* entry);

  bool interactive_, colours_, wraps_;
  std::unique_ptr<RawMode> mode_;  // of an interactive one
  LineBuffer buffer_;
  History history_;
  Rows drawn_;                     // as the terminal has it, from row top_ on, when it had so many columns
  std::size_t drawn_columns_ = 0;
  std::size_t drawn_row_ = 0;  // where the cursor was left, from the first row drawn
  std::size_t top_ = 0;        // the message's first row drawn
  std::optional<int> unread_;  // a byte that read_character found not to be its own
  std::string pending_;        // read ahead of plain lines
};

}  // namespace tandem::cli::chat
