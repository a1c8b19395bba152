#include "ops/cuda/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "ops/cuda/few_tokens.cuh"
#include "ops/cuda/gemm_tables.h"
#include "ops/cuda/lt_product.h"

namespace tandem::ops::cuda {

cublasLtMatmulAlgo_t library_algorithm(const GemmEntry& entry) {
  cublasLtMatmulAlgo_t algorithm{};
  static_assert(sizeof algorithm.data == sizeof entry.words);
  std::ranges::copy(entry.words, algorithm.data);
  return algorithm;
}

void Gemm::choose_table(std::string_view device) {
  ChosenGemmTable chosen = choose_gemm_table(gemm_tables(), device, cublasLtGetVersion());
  table_ = std::move(chosen.table);
  note_ = std::move(chosen.note);
}

Result<void> Gemm::check(const GemmEntry& entry, int tokens) const {
  if (entry.kind == GemmKind::FewTokens) return check_few_tokens(entry.op, entry.n, entry.k, tokens, entry.plan);
  LtProduct product;
  TANDEM_TRY(product.describe(entry.n, entry.k, tokens, entry.k, entry.n));
  return product.check(context_, library_algorithm(entry));
}

Result<void> Gemm::prepare(const DeviceMatrix& weight, int max_tokens) {
  if (!prepared_.insert({weight.rows, weight.cols, weight.gate_up}).second) return {};
  const auto usable = [this](const GemmEntry& entry, int tokens) { return check(entry, tokens); };
  const GemmTable* const table = table_ ? &*table_ : nullptr;
  std::vector<std::string> notes;
  if (weight.gate_up)
    for (const GemmBucket& bucket : plan_gemm(table, GemmOp::Swiglu, weight.rows, weight.cols, max_tokens, usable, notes))
      if (bucket.entry) algorithms_.emplace(Key{GemmOp::Swiglu, weight.rows, weight.cols, bucket.tokens}, Algorithm{.kind = GemmKind::FewTokens, .plan = bucket.entry->plan});
  for (const GemmBucket& bucket : plan_gemm(table, GemmOp::Linear, weight.rows, weight.cols, max_tokens, usable, notes)) {
    Algorithm algorithm;
    if (bucket.entry) {
      algorithm = {bucket.entry->kind, library_algorithm(*bucket.entry), bucket.entry->plan};
    } else {
      LtProduct product;
      TANDEM_TRY(product.describe(weight.rows, weight.cols, bucket.tokens, weight.cols, weight.rows));
      TANDEM_ASSIGN(const std::vector<cublasLtMatmulAlgo_t> found, product.heuristics(context_, 1));
      if (found.empty())
        return fail(ErrorKind::Unsupported, fmt::format("cuBLASLt has no algorithm for {} tokens with a {} x {} weight", bucket.tokens,
                                                        weight.rows, weight.cols));
      algorithm.library = found.front();
    }
    algorithms_.emplace(Key{GemmOp::Linear, weight.rows, weight.cols, bucket.tokens}, algorithm);
  }
  for (const std::string& note : notes) log_warn("[device {}] {}", context_.ordinal, note);
  return {};
}

const Gemm::Algorithm* Gemm::find(GemmOp op, const DeviceMatrix& weight, std::int64_t tokens) const {
  const auto found = algorithms_.find({op, weight.rows, weight.cols, gemm_bucket(static_cast<int>(tokens))});
  return found == algorithms_.end() ? nullptr : &found->second;
}

Result<void> Gemm::run(View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y) {
  const std::int64_t tokens = x.size(0);
  if (tokens == 0) return {};
  const Algorithm* const algorithm = find(GemmOp::Linear, weight, tokens);
  if (!algorithm)
    return fail(ErrorKind::Device, fmt::format("linear: no algorithm prepared for {} tokens with a {} x {} weight", tokens,
                                               weight.rows, weight.cols));
  if (algorithm->kind == GemmKind::FewTokens) return few_tokens(context_, GemmOp::Linear, x, weight, y, algorithm->plan);
  LtProduct product;
  TANDEM_TRY(product.describe(weight.rows, weight.cols, tokens, x.stride[0], y.stride[0]));
  const auto run = product.run(context_, x.data, weight.data, y.data, algorithm->library);
  if (run) return {};
  return fail(ErrorKind::Device, fmt::format("linear, {} tokens with a {} x {} weight: {}", tokens, weight.rows, weight.cols, run.error().message));
}

Result<bool> Gemm::run_swiglu(View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y) {
  if (x.size(0) == 0 || !weight.gate_up) return false;
  const Algorithm* const algorithm = find(GemmOp::Swiglu, weight, x.size(0));
  if (!algorithm) return false;
  TANDEM_TRY(few_tokens(context_, GemmOp::Swiglu, x, weight, y, algorithm->plan));
  return true;
}

}  // namespace tandem::ops::cuda
