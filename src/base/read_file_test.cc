#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace tandem {
namespace {

class ReadFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "read_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& text) {
    std::ofstream(folder_ / "file", std::ios::binary) << text;
    return folder_ / "file";
  }
  static Error refusal(const std::filesystem::path& path, const FileLimits& limits = {}) {
    const auto read = read_file(path, limits);
    return read ? Error{ErrorKind::Poisoned, "read"} : read.error();
  }

  std::filesystem::path folder_;
};

TEST_F(ReadFile, AllBytesComeWhateverTheSizeSaid) {
  const std::string text(200000, '\0');
  EXPECT_EQ(read_file(write(text)), text);
  const auto read = read_file("/proc/self/maps");  // says 0 bytes
  ASSERT_TRUE(read);
  EXPECT_NE(read->find("[stack]"), std::string::npos);
}

TEST_F(ReadFile, WhatIsMissingOrUnreadableIsNamed) {
  const Error missing = refusal(folder_ / "none");
  EXPECT_EQ(missing.kind, ErrorKind::NotFound);
  EXPECT_EQ(missing.message, (folder_ / "none").string() + " is missing");
  std::filesystem::create_symlink("nowhere", folder_ / "link");
  const Error link = refusal(folder_ / "link");
  EXPECT_EQ(link.kind, ErrorKind::NotFound);
  EXPECT_EQ(link.message, (folder_ / "link").string() + " is a link to nowhere, which cannot be opened: No such file or directory");
  const Error below = refusal(write("x") / "below");
  EXPECT_EQ(below.kind, ErrorKind::Io);
  EXPECT_EQ(below.message, (folder_ / "file/below").string() + " cannot be opened: Not a directory");
}

TEST_F(ReadFile, OnlyARegularFileIsReadAndNothingElseIsWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, (folder_ / "socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(descriptor);
  const std::pair<std::filesystem::path, std::string> kinds[] = {
      {folder_, "a folder"}, {folder_ / "pipe", "a pipe"}, {folder_ / "socket", "a socket or device"}, {"/dev/null", "a device"}};
  for (const auto& [path, kind] : kinds) {
    const Error error = refusal(path);
    EXPECT_EQ(error.kind, ErrorKind::Invalid);
    EXPECT_EQ(error.message, path.string() + " is not a regular file but " + kind);
  }
}

TEST_F(ReadFile, AnEmptyFileIsRefusedUnlessItMayBeEmpty) {
  EXPECT_EQ(refusal(write("")).message, (folder_ / "file").string() + " is empty");
  EXPECT_EQ(read_file(folder_ / "file", {.may_be_empty = true}), "");
}

TEST_F(ReadFile, AFileOfMoreBytesThanTheLimitIsRefusedWithBoth) {
  const auto path = write("12345");
  EXPECT_EQ(read_file(path, {.most_bytes = 5}), "12345");
  EXPECT_EQ(refusal(path, {.most_bytes = 4}).message, path.string() + " has 5 bytes; at most 4 work");
  EXPECT_EQ(refusal("/proc/self/maps", {.most_bytes = 4}).message, "/proc/self/maps has more than 4 bytes; at most 4 work");
}

}  // namespace
}  // namespace tandem
