#pragma once

#include <cublasLt.h>
#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/gemm_table.h"
#include "ops/linear.h"

namespace tandem::ops::cuda {

// A weight on the device: row-major [rows, cols] bf16, no gaps. LinearWeight::packed points here.
struct DeviceMatrix {
  const bf16* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool gate_up = false;              // gate rows, then as many up rows
  std::optional<CUtensorMap> units;  // how the decode block fetches it, if it can: see block_cuda.h
  std::optional<CUtensorMap> tiles;  // how products of few tokens do: see few_tokens.cuh
};

// Products: by the algorithm table of this device (ops/gemm_table.h), and cuBLASLt's first heuristic without atomics
// where that has no entry. One per rank (R1.5). Nothing is measured, so every rank and run has equal bits; `prepare`
// chooses before serving, since asking cuBLASLt costs the host time.
//
// Thread: the rank's. What is chosen grows only in prepare.
class Gemm {
 public:
  explicit Gemm(const Context& context) : context_(context) {}
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // The table among those that came with this library (gemm_tables/), by the device's name. Before `prepare`.
  void choose_table(std::string_view device);
  // Another table in its place, as `tandem tune` and tests want. Before `prepare`.
  void use_table(std::optional<GemmTable> table) { table_ = std::move(table); }

  // Chooses algorithms for products with `weight` of 1 to max_tokens tokens, the same for every weight. Logs each
  // entry of the table that this device refuses.
  [[nodiscard]] Result<void> prepare(const DeviceMatrix& weight, int max_tokens);

  // y[t,n] = bf16(sum_k x[t,k] * weight[n,k]). 2 * T * N * K flops.
  // Error: Device, with the shape, if prepare was not called for it or the library fails.
  [[nodiscard]] Result<void> run(View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y);

  // The same with SwiGLU as its epilogue, if the table has that for this product; false, with nothing done, if not.
  [[nodiscard]] Result<bool> run_swiglu(View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y);

  // Which table was chosen and its hash, or why none: a line for the log.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  struct Algorithm {
    GemmKind kind = GemmKind::Library;
    cublasLtMatmulAlgo_t library{};
    FewTokensPlan plan;
  };
  using Key = std::tuple<GemmOp, std::int64_t, std::int64_t, int>;  // n, k, bucket

  [[nodiscard]] Result<void> check(const GemmEntry& entry, int tokens) const;
  [[nodiscard]] const Algorithm* find(GemmOp op, const DeviceMatrix& weight, std::int64_t tokens) const;

  const Context& context_;
  std::optional<GemmTable> table_;
  std::string note_;
  std::set<std::tuple<std::int64_t, std::int64_t, bool>> prepared_;  // n, k, gate_up
  std::map<Key, Algorithm> algorithms_;
};

// The library's algorithm in a table's words, and back.
[[nodiscard]] cublasLtMatmulAlgo_t library_algorithm(const GemmEntry& entry);

}  // namespace tandem::ops::cuda
