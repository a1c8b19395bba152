#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace tandem::model {

// A file mapped read-only. The bytes live as long as the object; moving keeps their address.
// Thread: any after opening. Ranks that map the same file share its pages: the host reads each byte once.
class MappedFile {
 public:
  // Follows links; the kind of a file is decided by its name, not by where a link leads.
  // Errors: those of read_file (base/read_file.h), save that of size; Io, with errno's text, if it cannot be mapped.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Starts reading these bytes (a part of bytes()) from the disk in large pieces; does not wait for them.
  void will_need(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tandem::model
