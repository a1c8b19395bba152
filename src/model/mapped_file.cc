#include "model/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tandem::model {
namespace {

tl::unexpected<Error> cannot_open(const std::filesystem::path& path, int code) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored))) {
    const std::string target = std::filesystem::read_symlink(path, ignored).string();
    return fail(code == ENOENT ? ErrorKind::NotFound : ErrorKind::Io,
                fmt::format("{} is a link to {}, which cannot be opened: {}", path.string(), target, std::strerror(code)));
  }
  if (code == ENOENT) return fail(ErrorKind::NotFound, fmt::format("{} is missing", path.string()));
  return fail(ErrorKind::Io, fmt::format("{} cannot be opened: {}", path.string(), std::strerror(code)));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe in place of a file must be refused, not waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return cannot_open(path, errno);
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};

  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return cannot_open(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorKind::Invalid, fmt::format("{} is not a regular file", path.string()));
  }
  if (status.st_size == 0) return fail(ErrorKind::Invalid, fmt::format("{} is empty", path.string()));

  void* address = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    return fail(ErrorKind::Io, fmt::format("{} cannot be mapped: {}", path.string(), std::strerror(errno)));
  }
  MappedFile file;
  file.path_ = path;
  file.data_ = static_cast<const std::byte*>(address);
  file.size_ = static_cast<std::size_t>(status.st_size);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) & ~(page - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  // Only a hint: without it the bytes come all the same, in smaller reads.
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

}  // namespace tandem::model
