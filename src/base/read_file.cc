#include "base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

tl::unexpected<Error> cannot_open(const std::filesystem::path& path, int code) {
  const ErrorKind kind = code == ENOENT ? ErrorKind::NotFound : ErrorKind::Io;
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored))) {
    const std::string target = std::filesystem::read_symlink(path, ignored).string();
    return fail(kind, fmt::format("{} is a link to {}, which cannot be opened: {}", path.string(), target, std::strerror(code)));
  }
  if (code == ENOENT) return fail(kind, fmt::format("{} is missing", path.string()));
  return fail(kind, fmt::format("{} cannot be opened: {}", path.string(), std::strerror(code)));
}

std::string_view name_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

tl::unexpected<Error> too_large(const std::filesystem::path& path, std::string_view bytes, std::size_t most_bytes) {
  return fail(ErrorKind::Invalid, fmt::format("{} has {} bytes; at most {} work", path.string(), bytes, most_bytes));
}

}  // namespace

Result<OpenFile> OpenFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe in place of a file must be refused, not waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int code = errno;
    return code == ENXIO ? fail(ErrorKind::Invalid, fmt::format("{} is not a regular file but a socket or device", path.string())) : cannot_open(path, code);
  }
  OpenFile file(descriptor, 0);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return cannot_open(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorKind::Invalid, fmt::format("{} is not a regular file but {}", path.string(), name_of(status.st_mode)));
  }
  file.size_bytes_ = static_cast<std::size_t>(status.st_size);
  return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> read_file(const std::filesystem::path& path, const FileLimits& limits) {
  TANDEM_ASSIGN(const OpenFile file, OpenFile::open(path));
  if (file.size_bytes() > limits.most_bytes) return too_large(path, std::to_string(file.size_bytes()), limits.most_bytes);
  std::string bytes;
  bytes.reserve(file.size_bytes());
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(file.descriptor(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorKind::Io, fmt::format("{} cannot be read: {}", path.string(), std::strerror(errno)));
    if (got == 0) break;
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
    if (bytes.size() > limits.most_bytes) return too_large(path, fmt::format("more than {}", limits.most_bytes), limits.most_bytes);
  }
  if (bytes.empty() && !limits.may_be_empty) return fail(ErrorKind::Invalid, fmt::format("{} is empty", path.string()));
  return bytes;
}

}  // namespace tandem
