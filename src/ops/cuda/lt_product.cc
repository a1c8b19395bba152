#include "ops/cuda/lt_product.h"

#include <fmt/format.h>

namespace tandem::ops::cuda {
namespace {

Result<void> checked_lt(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorKind::Device, fmt::format("{}: {}", what, cublasLtGetStatusName(status)));
}

}  // namespace

LtProduct::~LtProduct() {
  if (c_) cublasLtMatrixLayoutDestroy(c_);
  if (b_) cublasLtMatrixLayoutDestroy(b_);
  if (a_) cublasLtMatrixLayoutDestroy(a_);
  if (operation_) cublasLtMatmulDescDestroy(operation_);
}

Result<void> LtProduct::describe(std::int64_t n, std::int64_t k, std::int64_t tokens, std::int64_t x_stride, std::int64_t y_stride) {
  const cublasOperation_t transpose = CUBLAS_OP_T;
  TANDEM_TRY(checked_lt(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul"));
  TANDEM_TRY(checked_lt(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
                        "matmul transpose"));
  TANDEM_TRY(checked_lt(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n), k), "matmul a"));
  TANDEM_TRY(checked_lt(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(tokens), x_stride),
                        "matmul b"));
  return checked_lt(cublasLtMatrixLayoutCreate(&c_, CUDA_R_16BF, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(tokens), y_stride),
                    "matmul c");
}

Result<std::vector<cublasLtMatmulAlgo_t>> LtProduct::heuristics(const Context& context, int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  TANDEM_TRY(checked_lt(cublasLtMatmulPreferenceCreate(&preference), "matmul preference"));
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  auto status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &context.workspace_bytes,
                                                     sizeof context.workspace_bytes);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(context.lt, operation_, a_, b_, c_, c_, preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  TANDEM_TRY(checked_lt(status, "matmul heuristic"));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i)
    if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[static_cast<std::size_t>(i)].algo);
  return algorithms;
}

Result<void> LtProduct::check(const Context& context, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  TANDEM_TRY(checked_lt(cublasLtMatmulAlgoCheck(context.lt, operation_, a_, b_, c_, c_, &algorithm, &result), "matmul algorithm"));
  if (result.workspaceSize <= context.workspace_bytes) return {};
  return fail(ErrorKind::Unsupported, fmt::format("matmul algorithm: {} bytes of workspace; {} at most", result.workspaceSize, context.workspace_bytes));
}

Result<void> LtProduct::run(const Context& context, const bf16* x, const bf16* weight, bf16* y, const cublasLtMatmulAlgo_t& algorithm) const {
  const float one = 1.0f, zero = 0.0f;
  return checked_lt(cublasLtMatmul(context.lt, operation_, &one, weight, a_, x, b_, &zero, y, c_, y, c_, &algorithm, context.workspace,
                                   context.workspace_bytes, context.stream),
                    "matmul");
}

}  // namespace tandem::ops::cuda
