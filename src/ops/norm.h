#pragma once

#include "base/bf16.h"
#include "comm/communicator.h"
#include "ops/view.h"

namespace tandem::ops {

// Zero-centred RMS norm (spec 3.2):
//
//   y[t,:] = bf16( x[t,:] / sqrt(mean(x[t,:]^2) + eps) * (1 + weight) )
//
// float32 inside, one rounding at the end. T tokens, H hidden size.
struct NormArgs {
  View<const bf16, 2> x;   // [T, H]
  const float* weight;     // [H] as in the checkpoint, without the 1
  View<bf16, 2> y;         // [T, H]; may be x itself
  float eps;
};

// What closes every mixer and every MLP (spec 3.7), as one stage so that a backend can fuse it:
//
//   partial = all_reduce(partial)          (nothing in a world of one)
//   residual[t,:] = bf16( residual[t,:] + partial[t,:] )
//   y[t,:] = norm(residual[t,:])           (the next block's input)
struct ReduceAddNormArgs {
  View<bf16, 2> partial;   // [T, H] dense: this rank's share of the sum; unspecified afterwards
  View<bf16, 2> residual;  // [T, H] in and out
  const float* weight;     // [H] of the norm that follows
  View<bf16, 2> y;         // [T, H]
  float eps;
  comm::Communicator* comm;
};

}  // namespace tandem::ops
