// Reads an input as a safetensors file. Promise: the tensors lie inside the file and, together, are all of it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "model/safetensors.h"
#include "tests/fuzz/driver.h"

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

std::vector<std::string> fuzz_seeds() {
  const std::string two = R"({"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"b":{"dtype":"BF16","shape":[16],"data_offsets":[32,64]}})";
  const std::string odd =
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"BF16","shape":[0,7],)"
      R"("data_offsets":[8,8]},"r":{"dtype":"U8","shape":[7,8],"data_offsets":[8,64]}}   )";
  const std::uint64_t length = two.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return {two, odd, file + two + std::string(64, 'x')};
}
