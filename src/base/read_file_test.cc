#include "base/read_file.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ReadFile, AFolderAndAMissingFileAreErrorsWithTheirPath) {
  const auto folder = read_file("/proc/self");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().kind, ErrorKind::Io);
  EXPECT_EQ(folder.error().message, "cannot read /proc/self: Is a directory");
  const auto missing = read_file("/proc/self/none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "cannot read /proc/self/none: No such file or directory");
}

TEST(ReadFile, AllBytesComeWhateverTheSizeSaid) {
  const auto read = read_file("/proc/self/maps");  // says 0 bytes
  ASSERT_TRUE(read);
  EXPECT_NE(read->find("[stack]"), std::string::npos);
}

}  // namespace
}  // namespace tandem
