#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/few_tokens.cuh"
#include "ops/cuda/tensor_map.h"

namespace tandem::ops::cuda {

int few_tokens_built_for(int tokens) { return tokens <= 16 ? 16 : tokens <= 32 ? 32 : tokens <= 64 ? 64 : 128; }

std::size_t few_tokens_shared_bytes(const FewTokensPlan& plan, int tokens) {
  const int built = few_tokens_built_for(tokens);
  const int stages = plan.stages * (plan.groups * kFewTokensTileBytes + built * kFewTokensStep * 2), sums = built * (plan.groups * 64 + 4) * 4;
  return static_cast<std::size_t>(std::max(stages, sums)) + 1024;
}

Result<void> check_few_tokens(GemmOp op, std::int64_t n, std::int64_t k, int tokens, const FewTokensPlan& plan) {
  const auto refuse = [&](std::string what) { return fail(ErrorKind::Unsupported, "few-tokens: " + what); };
  if (tokens > kFewTokensMost) return refuse(fmt::format("{} tokens; {} at most", tokens, kFewTokensMost));
  if (n % (op == GemmOp::Swiglu ? 16 : 8) != 0 || k % 8 != 0) return refuse(fmt::format("a {} x {} weight; multiples of 8 work", n, k));
  if ((plan.groups != 1 && plan.groups != 2 && plan.groups != 4) || (op == GemmOp::Swiglu && plan.groups == 1))
    return refuse(fmt::format("{} groups; {} work", plan.groups, op == GemmOp::Swiglu ? "2 and 4" : "1, 2 and 4"));
  const std::int64_t steps = (k + kFewTokensStep - 1) / kFewTokensStep;
  if (plan.splits < 1 || plan.splits > std::min<std::int64_t>(kFewTokensMostSplits, steps))
    return refuse(fmt::format("{} splits of {} steps; 1 to {} work", plan.splits, steps, std::min<std::int64_t>(kFewTokensMostSplits, steps)));
  if (plan.stages < 2 || plan.stages > kFewTokensMostStages) return refuse(fmt::format("{} stages; 2 to {} work", plan.stages, kFewTokensMostStages));
  if (few_tokens_shared_bytes(plan, tokens) > kFewTokensSharedLimit)
    return refuse(fmt::format("{} bytes of shared memory; {} at most", few_tokens_shared_bytes(plan, tokens), kFewTokensSharedLimit));
  return {};
}

Result<std::optional<CUtensorMap>> weight_tiles(const DeviceMatrix& weight) {
  if (weight.cols % 8 != 0) return std::optional<CUtensorMap>{};
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(weight.cols), static_cast<std::uint64_t>(weight.rows)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(weight.cols) * sizeof(bf16)};
  const std::uint32_t box[] = {kFewTokensStep, 64};
  TANDEM_ASSIGN(const CUtensorMap map, tensor_map(weight.data, sizes, strides, box));
  return std::optional<CUtensorMap>{map};
}

}  // namespace tandem::ops::cuda
