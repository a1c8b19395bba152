#include "memory/pool_layout.h"

#include "ops/attention.h"
#include "ops/delta.h"
#include "ops/step_view.h"

namespace tandem::memory {

KvLayout::KvLayout(const model::Geometry& geometry, const model::Partition& partition)
    : layers(geometry.full_layers()), kv_heads(partition.kv_heads()) {}

std::int64_t KvLayout::half_elements() const { return std::int64_t{kv_heads} * ops::kPageTokens * ops::kHeadDim; }

StateLayout::StateLayout(const model::Geometry& geometry, const model::Partition& partition)
    : layers(geometry.linear_layers()), shape(partition.delta()) {}

std::int64_t StateLayout::state_elements() const {
  return std::int64_t{shape.value_heads} * ops::kDeltaHeadDim * ops::kDeltaHeadDim;
}

std::int64_t StateLayout::conv_elements() const { return std::int64_t{shape.channels()} * ops::kConvWindow; }

}  // namespace tandem::memory
