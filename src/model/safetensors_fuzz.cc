// Reads an input as a safetensors file. Promise: the tensors lie inside the file and, together, are all of it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "model/safetensors.h"

namespace {

void read(std::span<const std::byte> file) {
  const auto parsed = tandem::model::parse_safetensors(file, "fuzzed");
  if (!parsed) return;
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  std::size_t next = sizeof header + static_cast<std::size_t>(header);
  for (const auto& tensor : *parsed) {
    if (tensor.data.empty()) continue;
    if (tensor.data.data() != file.data() + next || tensor.data.size() > file.size() - next) std::abort();
    next += tensor.data.size();
  }
  if (next != file.size()) std::abort();
}

}  // namespace

// Once as a whole file, once as the header of one whose length and 64 bytes of data are right.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read({reinterpret_cast<const std::byte*>(data), size});
  std::vector<std::byte> file(sizeof(std::uint64_t) + size + 64);
  const std::uint64_t length = size;
  std::memcpy(file.data(), &length, sizeof length);
  if (size > 0) std::memcpy(file.data() + sizeof length, data, size);
  read(file);
  return 0;
}
