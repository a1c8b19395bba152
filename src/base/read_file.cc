#include "base/read_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace tandem {

// Not an ifstream: the standard library's opens a folder, and reading that one throws out of its iterators.
Result<std::string> read_file(const std::filesystem::path& path) {
  const auto refused = [&path](int problem) { return fail(ErrorKind::Io, "cannot read " + path.string() + ": " + std::strerror(problem)); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!file) return refused(errno);
  std::string bytes;
  char buffer[16384];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) bytes.append(buffer, got);
  if (std::ferror(file.get())) return refused(errno);
  return bytes;
}

}  // namespace tandem
