#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// y [T, N] = x [T, K] weight [N, K]^T as cuBLASLt sees it: column-major, so y^T = weight * x^T. Owns its descriptors.
// Thread: the rank's. Errors: Device, with the library's status.
class LtProduct {
 public:
  LtProduct() = default;
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // Strides from token to token, in elements. Once per object.
  [[nodiscard]] Result<void> describe(std::int64_t n, std::int64_t k, std::int64_t tokens, std::int64_t x_stride, std::int64_t y_stride);

  // Up to `most` algorithms, the library's favourite first; none that adds in an order that may change (atomics).
  [[nodiscard]] Result<std::vector<cublasLtMatmulAlgo_t>> heuristics(const Context& context, int most) const;

  // Whether this library and device can run the algorithm on this product within the workspace.
  [[nodiscard]] Result<void> check(const Context& context, const cublasLtMatmulAlgo_t& algorithm) const;

  [[nodiscard]] Result<void> run(const Context& context, const bf16* x, const bf16* weight, bf16* y, const cublasLtMatmulAlgo_t& algorithm) const;

 private:
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

}  // namespace tandem::ops::cuda
