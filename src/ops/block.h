#pragma once

#include "base/bf16.h"
#include "comm/communicator.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace tandem::ops {

// Everything between one mixer and the next, as one stage so that a backend can fuse it:
//
//   partial  = linear(mixed, out)                                      closes the mixer
//   hidden   = reduce_add_norm(partial, residual, post_norm, out_comm)
//   act      = linear_swiglu(hidden, gate_up)                          the MLP
//   partial  = linear(act, down)
//   hidden   = reduce_add_norm(partial, residual, next_norm, comm)
//   projected = linear(hidden, next)                                   opens the next mixer; not after the last layer
//
// Every value in between is rounded as those operators round it. T tokens, H hidden size, V width of the
// mixer's output on this rank, I intermediate channels of this rank, N outputs of the next projection.
struct BlockArgs {
  View<const bf16, 2> mixed;     // [T, V]
  LinearWeight out;              // [H, V]
  comm::Communicator* out_comm;  // of the first reduction
  const float* post_norm;        // [H]
  LinearWeight gate_up;          // [2 I, H] from Backend::load_gate_up
  LinearWeight down;             // [H, I]
  comm::Communicator* comm;      // of the second reduction
  const float* next_norm;        // [H] the next layer's first norm, or the model's last
  LinearWeight next;             // [N, H] the next mixer's projection; packed = nullptr after the last layer
  View<bf16, 2> residual;        // [T, H] in and out
  View<bf16, 2> hidden;          // [T, H] result if there is no `next`, else unspecified
  View<bf16, 2> projected;       // [T, N] result if there is a `next`; may lie where `mixed` or the scratch lies
  float eps;
  // Scratch of the unfused form; contents unspecified afterwards. `mixed` may lie in gate_up_scratch or act.
  View<bf16, 2> partial;          // [T, H] dense
  View<bf16, 2> gate_up_scratch;  // [T, 2 I]
  View<bf16, 2> act;              // [T, I]
};

}  // namespace tandem::ops
