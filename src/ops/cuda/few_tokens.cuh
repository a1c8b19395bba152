#pragma once

#include <cstddef>

#include "ops/cuda/context.h"
#include "ops/cuda/linear.h"
#include "ops/gemm_table.h"
#include "ops/view.h"

namespace tandem::ops::cuda {

// Products of few tokens with a weight that streams through once, for where cuBLASLt's tiles leave the memory idle
// (narrow outputs, R1.5's table says where). Also with SwiGLU as its epilogue.
//
// Rules: ops/linear.h. Bits depend on the plan alone, not on the number of tokens; no atomics, sums in a fixed order.
// Moves the weight once, and x once per 64 * plan.groups outputs (L2). Limit: memory.
inline constexpr int kFewTokensMost = 128;
inline constexpr int kFewTokensStep = 64;                             // inputs of one step: 128 bytes, a swizzled row
inline constexpr int kFewTokensTileBytes = 64 * kFewTokensStep * 2;   // 64 outputs by one step
inline constexpr int kFewTokensMostStages = 16;
inline constexpr int kFewTokensMostSplits = 8;                        // blocks of a cluster that every device grants
inline constexpr std::size_t kFewTokensSharedLimit = (227u << 10) - 512;  // beside the barriers

// Function attributes of this device (R1.5). Thread: the rank's.
[[nodiscard]] Result<void> prepare_few_tokens();

// The number of tokens that the kernel which serves `tokens` is built for.
[[nodiscard]] int few_tokens_built_for(int tokens);

// Shared memory of one block.
[[nodiscard]] std::size_t few_tokens_shared_bytes(const FewTokensPlan& plan, int tokens);

// Whether the kernel can do it: N and K multiples of 8, at most kFewTokensMost tokens, a plan that fits the device.
// N is the weight's rows. Error: Unsupported, with what is wrong.
[[nodiscard]] Result<void> check_few_tokens(GemmOp op, std::int64_t n, std::int64_t k, int tokens, const FewTokensPlan& plan);

// How the kernel fetches a weight: 64 rows by 64 inputs at a time. Nothing if K is no multiple of 8. Error: Device.
[[nodiscard]] Result<std::optional<CUtensorMap>> weight_tiles(const DeviceMatrix& weight);

// Queues y = x weight^T, or y = SwiGLU of it if op says so (y then has half the weight's rows). T = 0 does nothing.
// x and y are 16-byte aligned, their rows too. Error: Unsupported as above, Device.
[[nodiscard]] Result<void> few_tokens(const Context& context, GemmOp op, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y,
                                      const FewTokensPlan& plan);

}  // namespace tandem::ops::cuda
