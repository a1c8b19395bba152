#include "model/fabricate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "model/fabricate_plan.h"
#include "model/fabricate_text.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

// Large enough that the system call does not count, small enough for the second-level cache.
constexpr std::int64_t kPieceElements = std::int64_t{1} << 19;

tl::unexpected<Error> io_error(const fs::path& path, std::string_view doing) {
  const int code = errno;
  return fail(code == ENOSPC ? ErrorKind::Capacity : ErrorKind::Io,
              fmt::format("[fabricate] {} {}: {}", doing, path.string(), std::strerror(code)));
}

class OutputFile {
 public:
  [[nodiscard]] static Result<OutputFile> create(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor < 0) return io_error(path, "creating");
    return OutputFile(path, descriptor);
  }
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  OutputFile& operator=(OutputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  // Thread: any, for bytes that do not overlap.
  [[nodiscard]] Result<void> write_at(std::int64_t offset, const void* bytes, std::size_t count) const {
    const auto* next = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t written = ::pwrite(descriptor_, next, count, offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return io_error(path_, "writing");
      next += written;
      offset += written;
      count -= static_cast<std::size_t>(written);
    }
    return {};
  }

 private:
  OutputFile(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  fs::path path_;
  int descriptor_;
};

Result<void> write_text(const fs::path& path, const std::string& text) {
  TANDEM_ASSIGN(const OutputFile file, OutputFile::create(path));
  return file.write_at(0, text.data(), text.size());
}

// A run of elements of one tensor, made and written by one thread.
struct Piece {
  const MadeFile* file;
  const OutputFile* output;
  const MadeTensor* tensor;
  const BellTable* table;  // null for the small float32 and structured tensors
  std::int64_t first;
  std::int64_t count;
};

float structured_value(const MadeTensor& tensor, std::int64_t head, std::int64_t heads) {
  const std::int64_t fixed = tensor.kind == MadeTensor::Kind::Decay
                                 ? made_a_log(tensor.layer, static_cast<int>(head), static_cast<int>(heads))
                                 : made_dt_bias(tensor.layer, static_cast<int>(head));
  return fixed_to_float(fixed);
}

Result<void> write_piece(const Piece& piece, std::uint64_t seed, std::vector<bf16>& narrow, std::vector<float>& wide) {
  const MadeTensor& tensor = *piece.tensor;
  const std::uint64_t key = tensor_key(seed, tensor.name);
  const std::int64_t start = 8 + static_cast<std::int64_t>(piece.file->header.size()) + tensor.offset;
  const auto count = static_cast<std::size_t>(piece.count);
  if (tensor.float32) {
    wide.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t element = piece.first + static_cast<std::int64_t>(i);
      wide[i] = tensor.kind == MadeTensor::Kind::Bell ? bell_float(tensor.bell, key, element)
                                                      : structured_value(tensor, element, tensor.elements());
    }
    return piece.output->write_at(start + piece.first * 4, wide.data(), count * 4);
  }
  narrow.resize(count);
  if (piece.table != nullptr) {
    piece.table->fill(key, piece.first, narrow);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      narrow[i] = to_bf16(structured_value(tensor, piece.first + static_cast<std::int64_t>(i), tensor.elements()));
    }
  }
  return piece.output->write_at(start + piece.first * 2, narrow.data(), count * 2);
}

Result<void> write_pieces(const std::vector<Piece>& pieces, const FabricateOptions& options, std::int64_t total,
                          const FabricateProgress& progress) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::int64_t done = 0;
  std::optional<Error> error;
  const auto work = [&] {
    std::vector<bf16> narrow;
    std::vector<float> wide;
    for (std::size_t i = next++; i < pieces.size() && !failed; i = next++) {
      auto written = write_piece(pieces[i], options.seed, narrow, wide);
      const std::lock_guard lock(mutex);
      if (!written) {
        failed = true;
        if (!error) error = std::move(written.error());
        return;
      }
      done += pieces[i].count * (pieces[i].tensor->float32 ? 4 : 2);
      if (progress) progress(done, total);
    }
  };
  int threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  threads = std::clamp(threads, 1, 64);
  std::vector<std::thread> team;
  for (int i = 1; i < threads; ++i) team.emplace_back(work);
  work();
  for (std::thread& thread : team) thread.join();
  if (error) return fail(std::move(*error));
  return {};
}

Result<void> prepare_folder(const fs::path& folder, std::int64_t bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorKind::Io, fmt::format("[fabricate] {}: {}", folder.string(), error.message()));
  if (!fs::is_empty(folder, error) || error) {
    return fail(ErrorKind::Invalid, fmt::format("[fabricate] {} is not empty; give a new folder", folder.string()));
  }
  const fs::space_info space = fs::space(folder, error);
  // 64 MiB for the tokenizer and the file system's own books.
  const auto needed = static_cast<std::uintmax_t>(bytes) + (64u << 20);
  if (!error && space.available < needed) {
    return fail(ErrorKind::Capacity, fmt::format("[fabricate] {} has {} bytes free; {} are needed", folder.string(),
                                                 space.available, needed));
  }
  return {};
}

}  // namespace

Result<std::int64_t> fabricated_bytes(const FabricateOptions& options) {
  TANDEM_ASSIGN(const MadeCheckpoint checkpoint, plan_checkpoint(options));
  return checkpoint.total_bytes;
}

Result<void> fabricate(const FabricateOptions& options, const FabricateProgress& progress) {
  if (options.geometry.vocab < kLeastFabricatedVocab) {
    return fail(ErrorKind::Invalid, fmt::format("[fabricate] vocab_size = {}; it must be at least {}, for 256 bytes, 33 "
                                                "added tokens and some words",
                                                options.geometry.vocab, kLeastFabricatedVocab));
  }
  TANDEM_ASSIGN(const MadeCheckpoint checkpoint, plan_checkpoint(options));
  TANDEM_TRY(prepare_folder(options.folder, checkpoint.total_bytes));

  std::vector<std::unique_ptr<OutputFile>> outputs;
  std::vector<std::unique_ptr<BellTable>> tables;
  std::vector<Piece> pieces;
  for (const MadeFile& file : checkpoint.files) {
    TANDEM_ASSIGN(OutputFile created, OutputFile::create(options.folder / file.name));
    outputs.push_back(std::make_unique<OutputFile>(std::move(created)));
    std::uint8_t length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(file.header.size() >> (8 * i));
    TANDEM_TRY(outputs.back()->write_at(0, length, 8));
    TANDEM_TRY(outputs.back()->write_at(8, file.header.data(), file.header.size()));
    for (const MadeTensor& tensor : file.tensors) {
      const BellTable* table = nullptr;
      if (!tensor.float32 && tensor.kind == MadeTensor::Kind::Bell) {
        tables.push_back(std::make_unique<BellTable>(tensor.bell));
        table = tables.back().get();
      }
      for (std::int64_t first = 0; first < tensor.elements(); first += kPieceElements) {
        pieces.push_back({&file, outputs.back().get(), &tensor, table, first,
                          std::min(kPieceElements, tensor.elements() - first)});
      }
    }
  }
  TANDEM_TRY(write_pieces(pieces, options, checkpoint.total_bytes, progress));

  const Geometry& g = options.geometry;
  if (!checkpoint.index.empty()) {
    TANDEM_TRY(write_text(options.folder / "model.safetensors.index.json", checkpoint.index));
  }
  TANDEM_TRY(write_text(options.folder / "tokenizer.json", made_tokenizer(g.vocab)));
  TANDEM_TRY(write_text(options.folder / "tokenizer_config.json", made_tokenizer_config(g.vocab, g.max_context)));
  TANDEM_TRY(write_text(options.folder / "chat_template.jinja", made_chat_template()));
  return write_text(options.folder / "config.json", made_config(options));
}

}  // namespace tandem::model
