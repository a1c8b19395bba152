#pragma once

#include "ops/attention.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// Split-KV attention of the step's decode rows, output gate included. Reference: ops/reference/attention.cc.
// Moves 1024 bytes a cached token and kv head; limit: memory.
// `partials` is scratch of decode_partials_bytes().
[[nodiscard]] Result<void> attention_decode(const Context& context, const DeviceStep& step, const AttentionArgs& args,
                                            float* partials);
[[nodiscard]] std::size_t decode_partials_bytes(int max_rows, int query_heads);

// Query heads of a rank at most; sizes the partials.
inline constexpr int kMaxQueryHeads = 32;
inline constexpr int kPrefillTokensAtOnce = 128;

// Attention of the step's prefill rows over their pages, output gate included.
// 4 * 256 flops a query head and (query, key) pair under the causal mask; limit: tensor cores.
[[nodiscard]] Result<void> attention_prefill(const Context& context, const DeviceStep& step, const AttentionArgs& args);

// The decode kernel for any tokens of the step, each with all its past: the plain twin of the prefill kernel.
[[nodiscard]] Result<void> attention_tokens(const Context& context, const DeviceStep& step, const AttentionArgs& args,
                                            float* partials, int first_token, int tokens);

// What has to be set on this device before the first launch (function attributes, R1.5).
[[nodiscard]] Result<void> prepare_attention(const Context& context);
[[nodiscard]] Result<void> prepare_attention_decode();

}  // namespace tandem::ops::cuda
