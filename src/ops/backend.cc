#include "ops/backend.h"

namespace tandem::ops {

Result<void> Backend::delta_mixer(const DeltaMixerArgs& args) {
  const DeltaShape& shape = args.shape;
  const std::int64_t tokens = args.projected.size(0);
  const std::int64_t row = args.projected.stride[0];
  TANDEM_TRY(delta_prepare({.projected = args.projected,
                            .shape = shape,
                            .params = args.params,
                            .state = args.state,
                            .q = args.q,
                            .k = args.k,
                            .v = args.v,
                            .beta = args.beta,
                            .decay = args.decay}));
  TANDEM_TRY(delta_rule({.q = args.q,
                         .k = args.k,
                         .v = args.v,
                         .beta = args.beta,
                         .decay = args.decay,
                         .shape = shape,
                         .state = args.state,
                         .o = args.y}));
  const View<const bf16, 3> z{args.projected.data + shape.channels(),
                              {tokens, shape.value_heads, kDeltaHeadDim},
                              {row, kDeltaHeadDim, 1}};
  return gated_norm({.o = args.y, .z = z, .weight = args.params.norm_weight, .y = args.y, .eps = args.eps});
}

Result<void> Backend::block(const BlockArgs& args) {
  TANDEM_TRY(linear({.x = args.mixed, .weight = args.out, .y = args.partial}));
  TANDEM_TRY(reduce_add_norm({.partial = args.partial,
                              .residual = args.residual,
                              .weight = args.post_norm,
                              .y = args.hidden,
                              .eps = args.eps,
                              .comm = args.out_comm}));
  TANDEM_TRY(linear_swiglu({.x = args.hidden, .weight = args.gate_up, .gate_up = args.gate_up_scratch, .y = args.act}));
  TANDEM_TRY(linear({.x = args.act, .weight = args.down, .y = args.partial}));
  TANDEM_TRY(reduce_add_norm({.partial = args.partial,
                              .residual = args.residual,
                              .weight = args.next_norm,
                              .y = args.hidden,
                              .eps = args.eps,
                              .comm = args.comm}));
  if (args.next.packed == nullptr) return {};
  return linear({.x = args.hidden, .weight = args.next, .y = args.projected});
}

}  // namespace tandem::ops
