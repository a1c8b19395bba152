#include "cli/chat/line_buffer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/utf8.h"

namespace tandem::cli::chat {
namespace {

TEST(LineBuffer, ALetterWithItsMarksIsOneCharacter) {
  LineBuffer buffer;
  buffer.insert("ae\u0301\u0323漢");
  buffer.left();
  buffer.erase_before();
  EXPECT_EQ(buffer.text(), "a漢");
  buffer.erase_after();
  EXPECT_EQ(buffer.text(), "a");
}

TEST(LineBuffer, UpAndDownKeepTheColumnInCharacters) {
  LineBuffer buffer;
  buffer.set("äöü漢x\nab\nlonger");
  EXPECT_FALSE(buffer.down());
  EXPECT_TRUE(buffer.up());
  EXPECT_EQ(buffer.cursor(), std::string("äöü漢x\nab").size());
  EXPECT_TRUE(buffer.up());
  EXPECT_EQ(buffer.cursor(), std::string("äö").size());
  EXPECT_FALSE(buffer.up());
}

TEST(LineBuffer, WordsAndLinesAreErasedAsInAShell) {
  LineBuffer buffer;
  buffer.set("one two  \nthree four");
  buffer.erase_word_before();
  EXPECT_EQ(buffer.text(), "one two  \nthree ");
  buffer.erase_to_line_begin();
  EXPECT_EQ(buffer.text(), "one two  \n");
  buffer.word_left();
  buffer.erase_to_line_end();
  EXPECT_EQ(buffer.text(), "one \n");
}

TEST(LineBuffer, NoSequenceOfKeysBreaksACharacter) {
  const unsigned seed = 20261130;
  SCOPED_TRACE(seed);
  std::mt19937 source(seed);
  LineBuffer buffer;
  const char* const pieces[] = {"a", " ", "\n", "ü", "漢", "🧂", "\u0301", "\t"};
  for (int i = 0; i < 20000; ++i) {
    switch (source() % 16) {
      case 0: buffer.left(); break;
      case 1: buffer.right(); break;
      case 2: buffer.word_left(); break;
      case 3: buffer.word_right(); break;
      case 4: buffer.line_begin(); break;
      case 5: buffer.line_end(); break;
      case 6: (void)buffer.up(); break;
      case 7: (void)buffer.down(); break;
      case 8: buffer.erase_before(); break;
      case 9: buffer.erase_after(); break;
      case 10: if (source() % 20 == 0) buffer.erase_word_before(); break;
      case 11: if (source() % 40 == 0) buffer.erase_to_line_end(); break;
      default: buffer.insert(pieces[source() % 8]);
    }
    ASSERT_LE(buffer.cursor(), buffer.text().size());
    ASSERT_TRUE(text::is_utf8(buffer.text()));
    ASSERT_TRUE(text::is_utf8(std::string_view(buffer.text()).substr(0, buffer.cursor())));
    if (i % 50 == 0) {
      const Rows rows = lay_out(buffer, "> ", 20);
      ASSERT_LT(rows.cursor_row, rows.rows.size());
      ASSERT_LE(rows.cursor_column, 20u);
    }
  }
}

TEST(LayOut, WideCharactersAndLineBreaksMakeRows) {
  LineBuffer buffer;
  buffer.set("abcd漢字\nx");
  const Rows rows = lay_out(buffer, "> ", 8);
  EXPECT_EQ(rows.rows, (std::vector<std::string>{"> abcd漢", "  字", "  x"}));
  EXPECT_EQ(rows.cursor_row, 2u);
  EXPECT_EQ(rows.cursor_column, 3u);
}

TEST(CursorRowAfterWrap, CountsTheRowsThatANarrowerTerminalMakesOfThoseAboveTheCursor) {
  LineBuffer buffer;
  buffer.set("0123456789abcdefghij\nxyz漢字");
  const Rows rows = lay_out(buffer, "> ", 40);  // "> 0123456789abcdefghij", "  xyz漢字"
  EXPECT_EQ(cursor_row_after_wrap(rows, 0, 40), 1u);
  EXPECT_EQ(cursor_row_after_wrap(rows, 0, 80), 1u);
  EXPECT_EQ(cursor_row_after_wrap(rows, 0, 22), 1u);
  EXPECT_EQ(cursor_row_after_wrap(rows, 0, 21), 2u);
  EXPECT_EQ(cursor_row_after_wrap(rows, 0, 8), 4u);   // three rows; "  xyz漢" fills 7 of 8 cells, and 字 comes to the next
  EXPECT_EQ(cursor_row_after_wrap(rows, 1, 8), 1u);
  EXPECT_EQ(cursor_row_after_wrap(rows, 1, 9), 1u);   // the cursor stands behind the last cell
  EXPECT_EQ(cursor_row_after_wrap(rows, 1, 10), 0u);
  EXPECT_EQ(cursor_row_after_wrap(lay_out(LineBuffer(), "> ", 40), 0, 1), 1u);
}

TEST(FirstShown, TheCursorsRowIsAlwaysShownAndTheWindowMovesOnlyForIt) {
  Rows rows{.rows = std::vector<std::string>(10), .cursor_row = 9, .cursor_column = 0};
  EXPECT_EQ(first_shown(rows, 4, 0), 6u);
  rows.cursor_row = 7;
  EXPECT_EQ(first_shown(rows, 4, 6), 6u);
  rows.cursor_row = 2;
  EXPECT_EQ(first_shown(rows, 4, 6), 2u);
  EXPECT_EQ(first_shown(rows, 10, 6), 0u);
  EXPECT_EQ(first_shown(rows, 1, 0), 2u);
}

TEST(History, LeafsBackAndForthAndKeepsWhatWasTyped) {
  History history;
  for (const char* text : {"one", "two", "two", ""}) history.add(text);
  EXPECT_EQ(*history.older("draft"), "two");
  EXPECT_EQ(*history.older("two"), "one");
  EXPECT_EQ(history.older("one"), nullptr);
  EXPECT_EQ(*history.newer(), "two");
  EXPECT_EQ(*history.newer(), "draft");
  EXPECT_EQ(history.newer(), nullptr);
}

}  // namespace
}  // namespace tandem::cli::chat
