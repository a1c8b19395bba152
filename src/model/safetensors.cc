#include "model/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <set>

#include "model/tensors.h"
#include "text/json_problem.h"

namespace tandem::model {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxDimensions = 8;
constexpr DType kKnownTypes[] = {
    kBf16,         kF32,         {"F16", 16}, {"F64", 64}, {"I64", 64}, {"I32", 32},     {"I16", 16},    {"I8", 8},
    {"U64", 64},   {"U32", 32},  {"U16", 16}, {"U8", 8},   {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
};

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(bytes[i]);
  return value;
}

// One entry of the header, with the words for its messages.
class Entry {
 public:
  Entry(std::string_view file, std::string_view name, const dom::element& value, std::size_t data_bytes)
      : file_(file), name_(name), value_(value), data_bytes_(data_bytes) {}

  [[nodiscard]] Result<StoredTensor> parse(std::span<const std::byte> data) const {
    dom::object members;
    if (value_.get(members) != simdjson::SUCCESS) return bad("is not an object");
    bool has_type = false, has_shape = false, has_offsets = false;
    StoredTensor tensor{.name = std::string(name_)};
    std::uint64_t begin = 0, end = 0;
    for (const dom::key_value_pair member : members) {
      bool* seen = member.key == "dtype"          ? &has_type
                   : member.key == "shape"        ? &has_shape
                   : member.key == "data_offsets" ? &has_offsets
                                                  : nullptr;
      if (seen == nullptr) continue;
      if (*seen) return bad(fmt::format("gives {} twice", member.key));
      *seen = true;
      if (member.key == "dtype") {
        TANDEM_ASSIGN(tensor.dtype, type(member.value));
      } else if (member.key == "shape") {
        TANDEM_ASSIGN(tensor.shape, shape(member.value));
      } else {
        TANDEM_TRY(offsets(member.value, begin, end));
      }
    }
    if (!has_type) return bad("has no dtype");
    if (!has_shape) return bad("has no shape");
    if (!has_offsets) return bad("has no data_offsets");
    TANDEM_ASSIGN(const std::uint64_t bytes, size(tensor));
    if (end - begin != bytes) {
      return bad(fmt::format("is {} {}, which is {} bytes, but data_offsets [{}, {}] span {}", tensor.dtype.name,
                             shape_text(tensor.shape), bytes, begin, end, end - begin));
    }
    tensor.data = data.subspan(begin, bytes);
    return tensor;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(std::string what) const {
    return fail(ErrorKind::Corrupt, fmt::format("{}: tensor {} {}", file_, name_, what));
  }

  [[nodiscard]] Result<DType> type(const dom::element& value) const {
    std::string_view word;
    if (value.get(word) != simdjson::SUCCESS) return bad("has a dtype that is not a string");
    for (const DType& known : kKnownTypes) {
      if (known.name == word) return known;
    }
    return bad(fmt::format("has the unknown dtype {}", word));
  }

  [[nodiscard]] Result<std::vector<std::int64_t>> shape(const dom::element& value) const {
    dom::array list;
    if (value.get(list) != simdjson::SUCCESS) return bad("has a shape that is not a list");
    if (list.size() > kMaxDimensions) {
      return bad(fmt::format("has {} dimensions; at most {} are allowed", list.size(), kMaxDimensions));
    }
    std::vector<std::int64_t> sizes;
    for (const dom::element item : list) {
      std::int64_t n = 0;
      if (!item.is_int64() || item.get(n) != simdjson::SUCCESS || n < 0) {
        return bad(fmt::format("has a dimension that is not a whole number from 0 on: {}", simdjson::minify(item)));
      }
      sizes.push_back(n);
    }
    return sizes;
  }

  [[nodiscard]] Result<void> offsets(const dom::element& value, std::uint64_t& begin, std::uint64_t& end) const {
    dom::array list;
    if (value.get(list) != simdjson::SUCCESS || list.size() != 2 || list.at(0).get(begin) != simdjson::SUCCESS ||
        list.at(1).get(end) != simdjson::SUCCESS) {
      return bad(fmt::format("has data_offsets that are not two whole numbers: {}", simdjson::minify(value)));
    }
    if (begin > end || end > data_bytes_) {
      return bad(fmt::format("lies at bytes [{}, {}] of {} bytes of data", begin, end, data_bytes_));
    }
    return {};
  }

  [[nodiscard]] Result<std::uint64_t> size(const StoredTensor& tensor) const {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 64;
    std::uint64_t elements = 1;
    bool empty = false;
    for (const std::int64_t n : tensor.shape) {
      empty = empty || n == 0;
      if (n != 0 && elements > kMost / static_cast<std::uint64_t>(n)) {
        return bad(fmt::format("has shape {}, whose element count overflows", shape_text(tensor.shape)));
      }
      if (n != 0) elements *= static_cast<std::uint64_t>(n);
    }
    return empty ? 0 : elements * static_cast<std::uint64_t>(tensor.dtype.bits) / 8;
  }

  std::string_view file_;
  std::string_view name_;
  const dom::element& value_;
  std::size_t data_bytes_;
};

Result<void> check_cover(const std::vector<StoredTensor>& tensors, std::span<const std::byte> data,
                         std::string_view file) {
  std::size_t covered = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.data.empty()) continue;
    const auto begin = static_cast<std::size_t>(tensor.data.data() - data.data());
    if (begin != covered) {
      return fail(ErrorKind::Corrupt,
                  fmt::format("{}: tensor {} begins at byte {} of the data; expected {}: the file has {}", file,
                              tensor.name, begin, covered, begin < covered ? "overlapping tensors" : "a gap"));
    }
    covered = begin + tensor.data.size();
  }
  if (covered != data.size()) {
    return fail(ErrorKind::Corrupt, fmt::format("{}: the tensors end at byte {} of {} bytes of data", file, covered,
                                                data.size()));
  }
  return {};
}

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < 8) {
    return fail(ErrorKind::Corrupt, fmt::format("{} has {} bytes; a safetensors file starts with 8 bytes of header length",
                                                file, bytes.size()));
  }
  const std::uint64_t header_bytes = little_endian(bytes);
  if (header_bytes > bytes.size() - 8 || header_bytes > kMaxHeaderBytes || header_bytes < 2) {
    return fail(ErrorKind::Corrupt,
                fmt::format("{}: header length {} in a file of {} bytes; expected between 2 and {}", file, header_bytes,
                            bytes.size(), std::min<std::uint64_t>(bytes.size() - 8, kMaxHeaderBytes)));
  }
  const std::span<const std::byte> data = bytes.subspan(8 + header_bytes);
  const simdjson::padded_string text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  if (text.data()[0] != '{') return fail(ErrorKind::Corrupt, fmt::format("{}: the header is not a JSON object", file));

  dom::parser parser;
  if (const auto error = parser.allocate(header_bytes, kMaxDepth)) {
    return fail(ErrorKind::Corrupt, fmt::format("{}: the header {}", file, text::json_problem(error)));
  }
  dom::object header;
  if (const auto error = parser.parse(text).get(header)) {
    return fail(ErrorKind::Corrupt, fmt::format("{}: the header is not a JSON object: it {}", file, text::json_problem(error)));
  }
  std::vector<StoredTensor> tensors;
  std::set<std::string_view> names;
  for (const dom::key_value_pair entry : header) {
    if (!names.insert(entry.key).second) {
      return fail(ErrorKind::Corrupt, fmt::format("{}: tensor {} is given twice", file, entry.key));
    }
    if (entry.key == "__metadata__") {
      if (!entry.value.is_object()) {
        return fail(ErrorKind::Corrupt, fmt::format("{}: __metadata__ is not an object", file));
      }
      continue;
    }
    TANDEM_ASSIGN(StoredTensor tensor, Entry(file, entry.key, entry.value, data.size()).parse(data));
    tensors.push_back(std::move(tensor));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.data.data() != b.data.data() ? a.data.data() < b.data.data() : a.data.size() < b.data.size();
  });
  TANDEM_TRY(check_cover(tensors, data, file));
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  TANDEM_ASSIGN(MappedFile file, MappedFile::open(path));
  TANDEM_ASSIGN(std::vector<StoredTensor> tensors, parse_safetensors(file.bytes(), path.string()));
  return SafetensorsFile{.file = std::move(file), .tensors = std::move(tensors)};
}

}  // namespace tandem::model
