#include "cli/chat/harmless.h"

#include <gtest/gtest.h>

namespace tandem::cli::chat {
namespace {

TEST(Harmless, ControlsGoAndTextStays) {
  EXPECT_EQ(harmless("a\x1b]0;t\x07\x1b[2Jb\r\b\x7f\n\tü漢🧂"), "a]0;t[2Jb\n\tü漢🧂");
  EXPECT_EQ(harmless("\u009b2J"), "2J");
}

TEST(Harmless, AStrayByteIsNoControlEither) { EXPECT_EQ(harmless("a\x9b" "2J"), "a\uFFFD2J"); }

}  // namespace
}  // namespace tandem::cli::chat
