#pragma once

#include <cublasLt.h>
#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/linear.h"

namespace tandem::ops::cuda {

// A weight on the device: row-major [rows, cols] bf16, no gaps. LinearWeight::packed points here.
struct DeviceMatrix {
  const bf16* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  // How the decode block fetches it, if it can: see block_cuda.h.
  std::optional<CUtensorMap> units;
};

// Products through cuBLASLt. One per rank (R1.5). Algorithms are chosen per weight shape and token
// bucket without measuring: cuBLASLt's first heuristic, atomics excluded, so that every rank and run has
// equal bits. `prepare` chooses them before serving, since choosing costs the host time.
//
// Thread: the rank's. The plan cache grows only in prepare.
class Gemm {
 public:
  explicit Gemm(const Context& context) : context_(context) {}
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Chooses algorithms for products with `weight` of 1 to max_tokens tokens.
  [[nodiscard]] Result<void> prepare(const DeviceMatrix& weight, int max_tokens);

  // y[t,n] = bf16(sum_k x[t,k] * weight[n,k]). 2 * T * N * K flops.
  // Error: Device, with the shape, if prepare was not called for it or the library fails.
  [[nodiscard]] Result<void> run(View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y);

 private:
  // Tokens are bucketed: exact to 16, then multiples of 16 to 256, then of 256.
  static int bucket(int tokens);
  using Key = std::tuple<std::int64_t, std::int64_t, int>;  // rows, cols, bucket

  const Context& context_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace tandem::ops::cuda
