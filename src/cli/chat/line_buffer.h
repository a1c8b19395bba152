#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::cli::chat {

// A message while it is typed: valid UTF-8, perhaps of several lines, and the cursor. Moves and deletions
// are by whole characters: a letter with its marks is one. Knows no terminal.
//
// Thread: one. Cost of each operation: linear in the text.
class LineBuffer {
 public:
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::size_t cursor() const { return cursor_; }  // bytes before it
  void set(std::string text);                                   // the cursor behind it
  void insert(std::string_view text);

  void left();
  void right();
  void word_left();
  void word_right();
  void line_begin();
  void line_end();
  // To the same column, in characters, of the line above or below; false if there is none.
  bool up();
  bool down();

  void erase_before();       // the character before the cursor
  void erase_after();
  void erase_word_before();
  void erase_to_line_begin();
  void erase_to_line_end();

 private:
  [[nodiscard]] std::size_t before(std::size_t at) const;
  [[nodiscard]] std::size_t after(std::size_t at) const;
  [[nodiscard]] std::size_t line_start(std::size_t at) const;
  [[nodiscard]] std::size_t line_stop(std::size_t at) const;
  [[nodiscard]] std::size_t column(std::size_t at) const;
  void go_to_column(std::size_t start, std::size_t column);
  void erase(std::size_t from, std::size_t to);

  std::string text_;
  std::size_t cursor_ = 0;
};

// The buffer as rows of a terminal of `columns` cells, each begun by `prompt` (the first) or by spaces of
// its width. Wide characters take two cells.
struct Rows {
  std::vector<std::string> rows;
  std::size_t cursor_row = 0;
  std::size_t cursor_column = 0;  // cells from the left edge
};
[[nodiscard]] Rows lay_out(const LineBuffer& buffer, std::string_view prompt, std::size_t columns);
// Where the cursor is, in rows below the beginning of row `first`, once a terminal that was narrowed or widened has
// wrapped these rows to its new width.
[[nodiscard]] std::size_t cursor_row_after_wrap(const Rows& rows, std::size_t first, std::size_t columns);
// The first of `count` rows (at most all) to show so that the cursor's is among them: `before`, what it was,
// or the nearest.
[[nodiscard]] std::size_t first_shown(const Rows& rows, std::size_t count, std::size_t before);

// Messages sent before, to be leafed through; what was being typed stands behind the newest.
class History {
 public:
  // Empty ones and repetitions of the last one are left out.
  void add(const std::string& text);
  // Older or newer than what is shown; `typed` is kept when leaving it. Null: there is no more.
  [[nodiscard]] const std::string* older(const std::string& typed);
  [[nodiscard]] const std::string* newer();

 private:
  std::vector<std::string> entries_;
  std::string typed_;
  std::size_t back_ = 0;  // 0: what is being typed
};

}  // namespace tandem::cli::chat
