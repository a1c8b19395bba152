#include "ops/cuda/warm_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tandem::ops::cuda {
namespace {

// The token counts at which Gemm's buckets end, and the last of all.
std::vector<int> sizes_to(int most) {
  std::vector<int> sizes;
  for (int tokens = 1; tokens < most; tokens += tokens < 16 ? 1 : tokens < 256 ? 16 : 256) sizes.push_back(tokens);
  sizes.push_back(most);
  return sizes;
}

}  // namespace

Result<void> warm_products(const Context& context, Gemm& gemm, std::span<const std::unique_ptr<DeviceMatrix>> weights,
                           const StepLimits& limits) {
  const auto most_tokens = [&limits](const DeviceMatrix& weight) {
    return weight.rows == limits.vocab ? limits.max_logit_rows : limits.max_tokens;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, const DeviceMatrix*> shapes;
  std::int64_t x_elements = 0, y_elements = 0;
  for (const auto& weight : weights) {
    shapes.try_emplace({weight->rows, weight->cols}, weight.get());
    x_elements = std::max(x_elements, most_tokens(*weight) * weight->cols);
    y_elements = std::max(y_elements, most_tokens(*weight) * weight->rows);
  }
  const std::size_t bytes = static_cast<std::size_t>(x_elements + y_elements) * sizeof(bf16);
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    return fail(ErrorKind::Capacity, fmt::format("[device {}] {} bytes wanted to run every product once; a smaller --max-step-tokens works",
                                                 context.ordinal, bytes));
  }
  auto* const x = static_cast<bf16*>(memory);
  bf16* const y = x + x_elements;
  Result<void> done = checked(cudaMemsetAsync(memory, 0, bytes, context.stream), "zeros for the first products");
  for (const auto& [shape, weight] : shapes)
    for (const int tokens : sizes_to(most_tokens(*weight)))
      if (done) done = gemm.run(dense<const bf16>(x, tokens, weight->cols), *weight, dense(y, tokens, weight->rows));
  if (done) done = checked(cudaStreamSynchronize(context.stream), "the first products");
  cudaFree(memory);
  return done;
}

}  // namespace tandem::ops::cuda
