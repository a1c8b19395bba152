#include <algorithm>

#include "ops/cuda/attention_cuda.cuh"

namespace tandem::ops::cuda {
Result<void> prepare_attention(const Context&) { return prepare_attention_decode(); }

Result<void> attention_prefill(const Context& context, const DeviceStep& step, const AttentionArgs& args, float* partials) {
  for (int first = step.decode_rows; first < step.total_tokens; first += kPrefillTokensAtOnce)
    TANDEM_TRY(attention_tokens(context, step, args, partials, first, std::min(kPrefillTokensAtOnce, step.total_tokens - first)));
  return {};
}

}  // namespace tandem::ops::cuda
