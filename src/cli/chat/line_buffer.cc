#include "cli/chat/line_buffer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

#include "text/utf8.h"

namespace tandem::cli::chat {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

char32_t code_point(const std::string& text, std::size_t at) {
  const char* here = text.data() + at;
  return text::next_code_point(here);
}

int cells(char32_t c) { return c == U'\t' ? 4 : std::max(0, utf8proc_charwidth(static_cast<std::int32_t>(c))); }

bool joins_the_one_before(char32_t c) { return c >= 0x80 && cells(c) == 0; }

bool is_blank(char byte) { return byte == ' ' || byte == '\n' || byte == '\t'; }

}  // namespace

void LineBuffer::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void LineBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

std::size_t LineBuffer::before(std::size_t at) const {
  while (at > 0) {
    do --at;
    while (at > 0 && continues(text_[at]));
    if (!joins_the_one_before(code_point(text_, at))) break;
  }
  return at;
}

std::size_t LineBuffer::after(std::size_t at) const {
  if (at >= text_.size()) return text_.size();
  do {
    do ++at;
    while (at < text_.size() && continues(text_[at]));
  } while (at < text_.size() && joins_the_one_before(code_point(text_, at)));
  return at;
}

void LineBuffer::left() { cursor_ = before(cursor_); }
void LineBuffer::right() { cursor_ = after(cursor_); }

void LineBuffer::word_left() {
  while (cursor_ > 0 && is_blank(text_[cursor_ - 1])) --cursor_;
  while (cursor_ > 0 && !is_blank(text_[cursor_ - 1])) --cursor_;
}

void LineBuffer::word_right() {
  while (cursor_ < text_.size() && is_blank(text_[cursor_])) ++cursor_;
  while (cursor_ < text_.size() && !is_blank(text_[cursor_])) ++cursor_;
}

std::size_t LineBuffer::line_start(std::size_t at) const {
  const std::size_t found = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
  return found == std::string::npos ? 0 : found + 1;
}

std::size_t LineBuffer::line_stop(std::size_t at) const { return std::min(text_.find('\n', at), text_.size()); }

void LineBuffer::line_begin() { cursor_ = line_start(cursor_); }
void LineBuffer::line_end() { cursor_ = line_stop(cursor_); }

std::size_t LineBuffer::column(std::size_t at) const {
  std::size_t count = 0;
  for (std::size_t here = line_start(at); here < at; here = after(here)) ++count;
  return count;
}

void LineBuffer::go_to_column(std::size_t start, std::size_t column) {
  cursor_ = start;
  const std::size_t stop = line_stop(start);
  for (; column > 0 && cursor_ < stop; --column) cursor_ = after(cursor_);
}

bool LineBuffer::up() {
  const std::size_t start = line_start(cursor_);
  if (start == 0) return false;
  go_to_column(line_start(start - 1), column(cursor_));
  return true;
}

bool LineBuffer::down() {
  const std::size_t stop = line_stop(cursor_);
  if (stop == text_.size()) return false;
  go_to_column(stop + 1, column(cursor_));
  return true;
}

void LineBuffer::erase(std::size_t from, std::size_t to) {
  text_.erase(from, to - from);
  cursor_ = from;
}

void LineBuffer::erase_before() { erase(before(cursor_), cursor_); }
void LineBuffer::erase_after() { erase(cursor_, after(cursor_)); }
void LineBuffer::erase_word_before() {
  const std::size_t end = cursor_;
  word_left();
  erase(cursor_, end);
}
void LineBuffer::erase_to_line_begin() { erase(line_start(cursor_), cursor_); }
void LineBuffer::erase_to_line_end() { erase(cursor_, line_stop(cursor_)); }

Rows lay_out(const LineBuffer& buffer, std::string_view prompt, std::size_t columns) {
  const std::size_t margin = prompt.size();
  columns = std::max(columns, margin + 4);
  Rows found{.rows = {std::string(prompt)}, .cursor_row = 0, .cursor_column = margin};
  std::size_t used = margin;
  const auto next_row = [&] {
    found.rows.emplace_back(margin, ' ');
    used = margin;
  };
  const std::string& text = buffer.text();
  for (std::size_t at = 0; at <= text.size();) {
    const char32_t c = at < text.size() ? code_point(text, at) : U'\0';
    const auto width = static_cast<std::size_t>(c == U'\n' || c == U'\0' ? 0 : cells(c));
    if (used + width > columns || (used == columns && width == 0 && c < 0x80)) next_row();
    if (at == buffer.cursor()) {
      found.cursor_row = found.rows.size() - 1;
      found.cursor_column = used;
    }
    if (at == text.size()) break;
    std::size_t stop = at + 1;
    while (stop < text.size() && continues(text[stop])) ++stop;
    if (c == U'\n') next_row();
    else if (c == U'\t') found.rows.back() += "    ";
    else if (c >= 0x20 && c != 0x7F) found.rows.back().append(text, at, stop - at);
    used += width;
    at = stop;
  }
  return found;
}

std::size_t cursor_row_after_wrap(const Rows& rows, std::size_t first, std::size_t columns) {
  columns = std::max<std::size_t>(columns, 2);
  std::size_t below = 0;
  for (std::size_t i = first; i <= rows.cursor_row; ++i) {
    const bool cursors = i == rows.cursor_row;
    std::size_t used = 0, all = 0;
    for (std::size_t at = 0; at < rows.rows[i].size() && (!cursors || all < rows.cursor_column);) {
      const auto width = static_cast<std::size_t>(cells(code_point(rows.rows[i], at)));
      if (used + width > columns) {
        ++below;
        used = 0;
      }
      used += width;
      all += width;
      do ++at;
      while (at < rows.rows[i].size() && continues(rows.rows[i][at]));
    }
    if (!cursors || used == columns) ++below;
  }
  return below;
}

std::size_t first_shown(const Rows& rows, std::size_t count, std::size_t before) {
  const std::size_t least = rows.cursor_row < count ? 0 : rows.cursor_row + 1 - count;
  const std::size_t most = std::min(rows.cursor_row, rows.rows.size() - count);
  return std::clamp(before, least, most);
}

void History::add(const std::string& text) {
  back_ = 0;
  if (!text.empty() && (entries_.empty() || entries_.back() != text)) entries_.push_back(text);
}

const std::string* History::older(const std::string& typed) {
  if (back_ == entries_.size()) return nullptr;
  if (back_ == 0) typed_ = typed;
  return &entries_[entries_.size() - ++back_];
}

const std::string* History::newer() {
  if (back_ == 0) return nullptr;
  return --back_ == 0 ? &typed_ : &entries_[entries_.size() - back_];
}

}  // namespace tandem::cli::chat
