#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/delta_cuda.cuh"

namespace tandem::ops::cuda {
namespace {

template <class T>
View<T, 3> from_token(View<T, 3> view, std::int64_t first) {
  return {view.data + first * view.stride[0], {view.shape[0] - first, view.shape[1], view.shape[2]}, view.stride};
}

DeltaPrepareArgs prepare_part(const DeltaMixerArgs& args) {
  return {.projected = args.projected, .shape = args.shape, .params = args.params, .state = args.state, .q = args.q,
          .k = args.k, .v = args.v, .beta = args.beta, .decay = args.decay};
}

// Token by token: the plain twin of the chunks, for shapes that they have no room for.
Result<void> recurrent(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  const int first = step.decode_rows;
  TANDEM_TRY(delta_prepare_rows(context, step, prepare_part(args), first, first));
  return delta_recurrent_rows(context, step,
                              {.q = args.q, .k = args.k, .v = args.v, .beta = args.beta, .decay = args.decay,
                               .shape = args.shape, .state = args.state, .o = args.y},
                              first);
}

Result<void> chunked(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  TANDEM_TRY(chunk_prepare(context, step, args, step.prefill_chunks));
  return chunk_scan(context, step, args);
}

}  // namespace

Result<void> prepare_delta(const Context&) {
  TANDEM_TRY(prepare_delta_stream());
  TANDEM_TRY(allow_chunk_prepare());
  return allow_chunk_scan();
}

// Decode rows come first in a step, so the prefill rows' tokens start at step.decode_rows.
Result<void> delta_prefill(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  const int first = step.decode_rows;
  if (step.total_tokens == first) return {};
  const bool fits = args.shape.value_heads <= kMostHeadsAKey * args.shape.key_heads;
  TANDEM_TRY(fits ? chunked(context, step, args) : recurrent(context, step, args));
  const View<bf16, 3> y = from_token(args.y, first);
  const View<const bf16, 3> z{args.projected.data + first * args.projected.stride[0] + args.shape.channels(),
                              y.shape,
                              {args.projected.stride[0], kDeltaHeadDim, 1}};
  return gated_norm(context, {.o = y, .z = z, .weight = args.params.norm_weight, .y = y, .eps = args.eps});
}

}  // namespace tandem::ops::cuda
