#pragma once

#include "base/bf16.h"
#include "ops/view.h"

namespace tandem::ops {

inline constexpr int kHeadDim = 256;    // attention head width of the family
inline constexpr int kRotaryDim = 64;   // leading dimensions that rotate (partial factor 0.25)

// One layer's share of the KV page pool. Page p holds, for this layer, K and V as
// [kv heads, kPageTokens, kHeadDim] bf16 each, at base + p * page_stride (K) and + v_offset (V).
struct KvPages {
  bf16* base = nullptr;          // device memory: layer's K of page 0
  std::int64_t page_stride = 0;  // elements between pages
  std::int64_t v_offset = 0;     // elements from K to V
  int kv_heads = 0;              // of this rank
};

// After the fused q|k|v projection (spec 3.3.1 to 3.3.3): per-head norm of q and k, rotary on the first
// kRotaryDim dimensions, K and V appended to their pages, q to `q`. The gate stays where it is.
//
// projected[t] = nh times (256 query | 256 gate), then nkv times 256 k, then nkv times 256 v.
// K is stored after norm and rotary, V raw. Rounding: norm once; cos and sin to bf16; each product and
// the sum to bf16 (spec 3.3.3). inv_freq[i] = theta^(-2i/64), float32.
struct AttentionPrepareArgs {
  View<const bf16, 2> projected;  // [T, (2 nh + 2 nkv) * 256]
  const float* q_norm;            // [256] without the 1
  const float* k_norm;            // [256]
  View<bf16, 3> q;                // [T, nh, 256]
  KvPages kv;
  float eps;
  float rope_theta;
};

// Causal grouped-query attention over the row's pages, then the output gate (spec 3.3.4, 3.3.5):
//
//   o = softmax(q k^T / 16) v over positions 0..pos(t), float32 inside, rounded to bf16
//   y[t,j,:] = bf16( o[t,j,:] * bf16(sigmoid(gate[t,j,:])) )
//
// Query head j reads kv head floor(j / (nh / nkv)). This step's K and V are already in the pages.
struct AttentionArgs {
  View<const bf16, 3> q;     // [T, nh, 256]
  View<const bf16, 3> gate;  // [T, nh, 256], strided: the gate halves of `projected`
  KvPages kv;
  View<bf16, 3> y;           // [T, nh, 256]
};

}  // namespace tandem::ops
