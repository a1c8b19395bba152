#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::ops {

// Which algorithm computes which product, measured once by `tandem tune` and committed (R1.5): serving looks up and
// never measures. One text file per device name (src/ops/cuda/gemm_tables), a product a line:
//
//   device NVIDIA H200
//   cublaslt 130001
//   # op    n     k  tokens   kind      numbers                    time     of the limit
//   linear 2560 9216  49   64 few-tokens  2 6 4                   us 13.1 limit 0.84
//   linear 2560 9216 129  192 cublaslt  2a 1 0 0 0 0 0 0        us 15.0 limit 0.80 | id 66 tile 18 split-k 3
//
// What follows a bar or a # is for people. Nothing here knows CUDA: plain data, any thread, const once made.

enum class GemmOp : std::uint8_t {
  Linear,  // ops/linear.h: N outputs, K inputs
  Swiglu,  // the first half of an MLP with its activation: N = gate and up rows together
};
[[nodiscard]] std::string_view name(GemmOp op);  // "linear", "swiglu"

enum class GemmKind : std::uint8_t {
  Library,  // cuBLASLt; `words`
  FewTokens,  // Tandem's kernel for few tokens; `plan`
};

// How ops/cuda/few_tokens.cu cuts a product.
struct FewTokensPlan {
  int groups = 0;  // of 64 outputs that a block computes
  int splits = 0;  // blocks that share a tile's inputs, a cluster
  int stages = 0;  // steps of 64 inputs on their way
  friend bool operator==(const FewTokensPlan&, const FewTokensPlan&) = default;
};

struct GemmEntry {
  GemmOp op = GemmOp::Linear;
  std::int64_t n = 0, k = 0;
  int first_tokens = 0, last_tokens = 0;  // serves products of this many tokens, both included
  GemmKind kind = GemmKind::Library;
  std::array<std::uint64_t, 8> words{};   // cublasLtMatmulAlgo_t as the library fills it; good for one version
  FewTokensPlan plan;
  double us = 0, limit = 0;               // as measured at last_tokens, and as a fraction of the device's limit
  std::string about;                      // for people; not read back
};

class GemmTable {
 public:
  // Error: Corrupt, with `file`, line and what is wrong: an unknown word, a number out of range, two entries that
  // serve the same product.
  [[nodiscard]] static Result<GemmTable> parse(std::string_view text, std::string_view file);

  // The entry that serves the product, or null. Lives as long as the table.
  [[nodiscard]] const GemmEntry* find(GemmOp op, std::int64_t n, std::int64_t k, int tokens) const;

  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] std::uint64_t library_version() const { return library_version_; }
  [[nodiscard]] std::span<const GemmEntry> entries() const { return entries_; }
  // FNV-1a of the file's bytes: equal hashes, equal choices.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

  // Entries of the library's kind are good for one version of it only.
  void drop_library_entries();

 private:
  std::string device_;
  std::uint64_t library_version_ = 0, hash_ = 0;
  std::vector<GemmEntry> entries_;
};

// The table's text, entries in the order given; parse() reads it back.
[[nodiscard]] std::string format_gemm_table(std::string_view device, std::uint64_t library_version,
                                            std::span<const GemmEntry> entries);

struct GemmTableFile {
  std::string_view name, text;
};

// The table for a device among those that came with the program, if there is one, and the line that start-up logs.
struct ChosenGemmTable {
  std::optional<GemmTable> table;
  std::string note;
};
[[nodiscard]] ChosenGemmTable choose_gemm_table(std::span<const GemmTableFile> files, std::string_view device,
                                                std::uint64_t library_version);

// Token counts share an algorithm by buckets: exact to 16, then multiples of 16 to 256, then of 256. Returns the
// bucket's largest count.
[[nodiscard]] int gemm_bucket(int tokens);

// Per bucket up to max_tokens, the entry that serves it; null where the table has none or `usable` refused it (the
// library's first heuristic serves). Each refused entry adds one line to `notes`.
struct GemmBucket {
  int tokens = 0;
  const GemmEntry* entry = nullptr;
};
using GemmUsable = std::function<Result<void>(const GemmEntry& entry, int tokens)>;
[[nodiscard]] std::vector<GemmBucket> plan_gemm(const GemmTable* table, GemmOp op, std::int64_t n, std::int64_t k,
                                                int max_tokens, const GemmUsable& usable, std::vector<std::string>& notes);

}  // namespace tandem::ops
