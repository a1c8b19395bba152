#include "model/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/read_file.h"

namespace tandem::model {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  TANDEM_ASSIGN(const OpenFile opened, OpenFile::open(path));
  if (opened.size_bytes() == 0) return fail(ErrorKind::Invalid, fmt::format("{} is empty", path.string()));

  void* address = ::mmap(nullptr, opened.size_bytes(), PROT_READ, MAP_SHARED, opened.descriptor(), 0);
  if (address == MAP_FAILED) {
    return fail(ErrorKind::Io, fmt::format("{} cannot be mapped: {}", path.string(), std::strerror(errno)));
  }
  MappedFile file;
  file.path_ = path;
  file.data_ = static_cast<const std::byte*>(address);
  file.size_ = opened.size_bytes();
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
