#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "ops/view.h"

namespace tandem::ops {

// A matrix in host memory (usually the mapped checkpoint), row-major with a row stride: rows are
// outputs, columns inputs, as safetensors stores a Linear. A shard by columns has stride > cols.
struct HostMatrix {
  const bf16* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // elements
};

// A weight as the backend packed it; `packed` is the backend's own. Made by Backend::load_linear or
// load_gate_up, lives as long as the backend.
struct LinearWeight {
  const void* packed = nullptr;
  std::int64_t rows = 0;  // N, outputs
  std::int64_t cols = 0;  // K, inputs
};

// y[t,n] = bf16( sum_k x[t,k] * weight[n,k] ), float32 sums (spec 3.3.1, 3.4.1).
// T tokens, N outputs of this rank, K inputs of this rank. With a row-parallel weight y is this rank's
// partial sum.
struct LinearArgs {
  View<const bf16, 2> x;  // [T, K]
  LinearWeight weight;    // [N, K]
  View<bf16, 2> y;        // [T, N]
};

// First half of the MLP (spec 3.7), one stage so that a backend can fuse it:
//
//   y[t,i] = bf16( bf16(silu(bf16(gate_i . x[t]))) * bf16(up_i . x[t]) )
//
// I intermediate channels of this rank. `weight` comes from Backend::load_gate_up.
struct LinearSwigluArgs {
  View<const bf16, 2> x;   // [T, K]
  LinearWeight weight;     // [2 I, K]
  View<bf16, 2> gate_up;   // [T, 2 I] scratch; contents unspecified afterwards
  View<bf16, 2> y;         // [T, I]
};

}  // namespace tandem::ops
