#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace tandem {

// A regular file, open for reading. Owns the descriptor. Thread: one at a time.
class OpenFile {
 public:
  // Errors, each with the path: NotFound; Invalid, a folder, pipe, socket or device, none of which is waited for; Io, with
  // errno's text. A link that leads nowhere is named with where it leads.
  [[nodiscard]] static Result<OpenFile> open(const std::filesystem::path& path);

  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }  // when it was opened; files under /proc say 0

 private:
  OpenFile(int descriptor, std::size_t size_bytes) : descriptor_(descriptor), size_bytes_(size_bytes) {}

  int descriptor_ = -1;
  std::size_t size_bytes_ = 0;
};

// What a file that is read whole may be.
struct FileLimits {
  std::size_t most_bytes = 256 << 20;  // ten times the largest tokenizer.json of the family
  bool may_be_empty = false;
};

// All bytes of a regular file. Thread: any.
// Errors: those of OpenFile::open; Invalid, if it is empty or has more than `limits.most_bytes`.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path, const FileLimits& limits = {});

}  // namespace tandem
