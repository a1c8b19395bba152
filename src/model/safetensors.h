#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/mapped_file.h"

namespace tandem::model {

// A safetensors file: 8 bytes little-endian header length, a JSON header, then the tensors' bytes.
// Everything in the header is checked before it is used: nobody else looks at raw offsets.

// Names as in the header ("BF16", "F32", ...), with the bits of one element.
struct DType {
  std::string_view name;
  int bits = 0;
  friend bool operator==(const DType& a, const DType& b) { return a.name == b.name; }
};
inline constexpr DType kBf16{"BF16", 16};
inline constexpr DType kF32{"F32", 32};

struct StoredTensor {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;   // empty for a scalar
  std::span<const std::byte> data;   // inside the mapped file
};

inline constexpr std::size_t kMaxHeaderBytes = 32 << 20;  // about 250,000 tensors

// Parses and checks the header of a whole file. Rules: header within the file and kMaxHeaderBytes, JSON at
// most 8 deep, no key twice, known dtypes, at most 8 dimensions, element counts that do not overflow, two
// offsets per tensor that equal its size, and together exactly the rest of the file: no overlap, no gap,
// nothing after. Tensors without elements are allowed. In order of their offsets.
// Error: Corrupt, naming `file` and the tensor, with expected and found.
[[nodiscard]] Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> bytes,
                                                                  std::string_view file);

// A mapped file with its parsed header. The tensors' bytes live as long as the object.
struct SafetensorsFile {
  MappedFile file;
  std::vector<StoredTensor> tensors;

  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);
};

}  // namespace tandem::model
