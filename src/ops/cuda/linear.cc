#include "ops/cuda/linear.h"

#include <fmt/format.h>

namespace tandem::ops::cuda {
namespace {

Result<void> checked_lt(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorKind::Device, fmt::format("{}: {}", what, cublasLtGetStatusName(status)));
}

// The descriptors of one product, destroyed with it. cuBLASLt is column-major: y^T = weight * x^T.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;

  ~Product() {
    if (c) cublasLtMatrixLayoutDestroy(c);
    if (b) cublasLtMatrixLayoutDestroy(b);
    if (a) cublasLtMatrixLayoutDestroy(a);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }

  Result<void> describe(std::int64_t rows, std::int64_t cols, std::int64_t tokens, std::int64_t x_stride,
                        std::int64_t y_stride) {
    const cublasOperation_t transpose = CUBLAS_OP_T;
    TANDEM_TRY(checked_lt(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul"));
    TANDEM_TRY(checked_lt(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                                         sizeof transpose),
                          "matmul transpose"));
    TANDEM_TRY(checked_lt(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, cols, rows, cols), "matmul a"));
    TANDEM_TRY(checked_lt(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, cols, tokens, x_stride), "matmul b"));
    return checked_lt(cublasLtMatrixLayoutCreate(&c, CUDA_R_16BF, rows, tokens, y_stride), "matmul c");
  }
};

}  // namespace

Gemm::~Gemm() = default;

int Gemm::bucket(int tokens) {
  if (tokens <= 16) return tokens;
  if (tokens <= 256) return (tokens + 15) / 16 * 16;
  return (tokens + 255) / 256 * 256;
}

Result<void> Gemm::prepare(const DeviceMatrix& weight, int max_tokens) {
  cublasLtMatmulPreference_t preference = nullptr;
  TANDEM_TRY(checked_lt(cublasLtMatmulPreferenceCreate(&preference), "matmul preference"));
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  auto status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &context_.workspace_bytes, sizeof context_.workspace_bytes);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &reductions, sizeof reductions);
  Result<void> result = checked_lt(status, "matmul preference");
  int previous = 0;
  for (int tokens = 1; result && tokens <= max_tokens; ++tokens) {
    const int size = bucket(tokens);
    if (size == previous) continue;
    previous = size;
    const Key key{weight.rows, weight.cols, size};
    if (algorithms_.contains(key)) continue;
    Product product;
    result = product.describe(weight.rows, weight.cols, size, weight.cols, weight.rows);
    if (!result) break;
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    result = checked_lt(cublasLtMatmulAlgoGetHeuristic(context_.lt, product.operation, product.a, product.b, product.c,
                                                       product.c, preference, 1, &found, &count),
                        "matmul heuristic");
    if (result && count == 0)
      result = fail(ErrorKind::Unsupported, fmt::format("cuBLASLt has no algorithm for {} tokens with a {} x {} weight",
                                                        size, weight.rows, weight.cols));
    if (result) algorithms_.emplace(key, found.algo);
  }
  cublasLtMatmulPreferenceDestroy(preference);
  return result;
}

Result<void> Gemm::run(View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y) {
  const std::int64_t tokens = x.size(0);
  if (tokens == 0) return {};
  const auto algorithm = algorithms_.find({weight.rows, weight.cols, bucket(static_cast<int>(tokens))});
  if (algorithm == algorithms_.end())
    return fail(ErrorKind::Device, fmt::format("linear: no algorithm prepared for {} tokens with a {} x {} weight", tokens,
                                               weight.rows, weight.cols));
  Product product;
  TANDEM_TRY(product.describe(weight.rows, weight.cols, tokens, x.stride[0], y.stride[0]));
  const float one = 1.0f, zero = 0.0f;
  return checked_lt(cublasLtMatmul(context_.lt, product.operation, &one, weight.data, product.a, x.data, product.b, &zero,
                                   y.data, product.c, y.data, product.c, &algorithm->second, context_.workspace,
                                   context_.workspace_bytes, context_.stream),
                    fmt::format("linear, {} tokens with a {} x {} weight", tokens, weight.rows, weight.cols));
}

}  // namespace tandem::ops::cuda
