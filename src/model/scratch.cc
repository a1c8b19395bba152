#include "model/scratch.h"

#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {
namespace {

template <class T>
ops::View<T, 2> matrix(Arena& arena, std::int64_t rows, std::int64_t cols) {
  return ops::dense(arena.take<T>(rows * cols), rows, cols);
}

template <class T>
ops::View<T, 3> heads(Arena& arena, std::int64_t rows, std::int64_t count, std::int64_t width) {
  return ops::dense(arena.take<T>(rows * count * width), rows, count, width);
}

}  // namespace

Scratch Scratch::lay_out(Arena& arena, const Geometry& geometry, const Partition& partition,
                         const ops::StepLimits& limits) {
  const std::int64_t tokens = limits.max_tokens;
  const ops::DeltaShape delta = partition.delta();
  Scratch s;
  s.residual = matrix<bf16>(arena, tokens, geometry.hidden);
  s.hidden = matrix<bf16>(arena, tokens, geometry.hidden);
  s.partial = matrix<bf16>(arena, tokens, geometry.hidden);
  s.ids = arena.take<std::int32_t>(tokens);

  const std::size_t shared = arena.mark();
  if (geometry.full_layers() > 0) {
    s.full.projected = matrix<bf16>(arena, tokens, partition.attention_width());
    s.full.q = heads<bf16>(arena, tokens, partition.query_heads(), ops::kHeadDim);
    s.full.y = heads<bf16>(arena, tokens, partition.query_heads(), ops::kHeadDim);
    arena.rewind(shared);
  }
  if (geometry.linear_layers() > 0) {
    s.linear.projected = matrix<bf16>(arena, tokens, delta.projected_width());
    s.linear.q = heads<float>(arena, tokens, delta.key_heads, ops::kDeltaHeadDim);
    s.linear.k = heads<float>(arena, tokens, delta.key_heads, ops::kDeltaHeadDim);
    s.linear.v = heads<bf16>(arena, tokens, delta.value_heads, ops::kDeltaHeadDim);
    s.linear.y = heads<bf16>(arena, tokens, delta.value_heads, ops::kDeltaHeadDim);
    s.linear.beta = matrix<float>(arena, tokens, delta.value_heads);
    s.linear.decay = matrix<float>(arena, tokens, delta.value_heads);
    arena.rewind(shared);
  }
  s.mlp.gate_up = matrix<bf16>(arena, tokens, 2 * std::int64_t{partition.intermediate()});
  s.mlp.y = matrix<bf16>(arena, tokens, partition.intermediate());
  arena.rewind(shared);
  if (partition.has_head()) s.logits = matrix<float>(arena, limits.max_logit_rows, geometry.vocab);
  return s;
}

std::size_t Scratch::bytes(const Geometry& geometry, const Partition& partition, const ops::StepLimits& limits) {
  Arena counter;
  (void)lay_out(counter, geometry, partition, limits);
  return counter.bytes();
}

}  // namespace tandem::model
