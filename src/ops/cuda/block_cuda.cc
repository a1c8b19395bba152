#include "ops/cuda/block_cuda.h"

#include <algorithm>

#include "ops/cuda/tensor_map.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kLeastStages = 4;  // of the ring; fewer would not keep the memory busy
constexpr int kActivationElements = 12 * 1024;  // of shared memory, if the hidden vectors do not need more

const DeviceMatrix& matrix(const LinearWeight& weight) { return *static_cast<const DeviceMatrix*>(weight.packed); }

constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

bool is_row_aligned(const void* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

Result<std::optional<CUtensorMap>> block_units(const DeviceMatrix& weight, bool gate_up) {
  if (weight.cols % 64 != 0 || (gate_up && weight.rows % kUnitRows != 0)) return std::optional<CUtensorMap>{};
  const auto rows = static_cast<std::uint64_t>(weight.rows), row_bytes = static_cast<std::uint64_t>(weight.cols) * sizeof(bf16);
  const std::uint64_t halves = gate_up ? 2 : 1;
  const std::uint64_t sizes[] = {64, rows / halves, halves, static_cast<std::uint64_t>(weight.cols) / 64};
  const std::uint64_t strides[] = {row_bytes, rows / halves * row_bytes, 64 * sizeof(bf16)};
  const std::uint32_t box[] = {64, gate_up ? 8u : 16u, gate_up ? 2u : 1u, kUnitCols / 64};
  // 4.4 TB/s without promotion, 4.1 with 256 bytes (18432 x 2560, one H200).
  TANDEM_ASSIGN(const CUtensorMap map, tensor_map(weight.data, sizes, strides, box, CU_TENSOR_MAP_L2_PROMOTION_NONE));
  return std::optional<CUtensorMap>(map);
}

Result<void> DecodeBlock::prepare(void* state, void* partials) {
  state_ = static_cast<unsigned long long*>(state);
  partials_ = static_cast<float*>(partials);
  return prepare_block_kernel();
}

Result<bool> DecodeBlock::run(const Context& context, const BlockArgs& args, const BlockTuning& tuning) const {
  const int tokens = static_cast<int>(args.mixed.size(0)), grid = context.multiprocessors;
  const bool has_next = args.next.packed != nullptr;
  if (state_ == nullptr || tokens < 1 || tokens > kBlockTokens || args.out_comm->world() > 1 || args.comm->world() > 1) return false;
  for (const LinearWeight* weight : {&args.out, &args.gate_up, &args.down, &args.next})
    if (weight->packed != nullptr && !matrix(*weight).units) return false;
  if (!is_row_aligned(args.mixed.data, args.mixed.stride[0]) || !is_row_aligned(args.residual.data, args.residual.stride[0]) ||
      !is_row_aligned(args.act.data, args.act.stride[0]) || !is_row_aligned(args.hidden.data, args.hidden.stride[0]))
    return false;

  BlockKernelArgs kernel{};
  const int hidden = static_cast<int>(args.out.rows);
  // Activations in shared memory are as wide as the hidden vectors, or wider if there are few tokens: then `down`
  // needs less cutting.
  const int most_chunks = std::max(static_cast<int>(rounded_up(hidden, kUnitCols)), kActivationElements / tokens) / kUnitCols;
  const BlockSplit out = split_by_units(hidden / kUnitRows, static_cast<int>(args.out.cols), grid, most_chunks);
  const BlockSplit down = split_by_units(hidden / kUnitRows, static_cast<int>(args.down.cols), grid, most_chunks);
  kernel.products[0] = {*matrix(args.out).units, out, kUnitRows};
  kernel.products[1] = {*matrix(args.gate_up).units, split_by_tiles(static_cast<int>(args.down.cols) / 8, hidden, grid), 8};
  kernel.products[2] = {*matrix(args.down).units, down, kUnitRows};
  if (has_next)
    kernel.products[3] = {*matrix(args.next).units, split_by_tiles(static_cast<int>(rounded_up(args.next.rows, kUnitRows)) / kUnitRows, hidden, grid),
                          kUnitRows};
  kernel.slots_a_group[0] = out.most_owners();
  kernel.slots_a_group[1] = down.most_owners();
  const int chunks = std::max({out.most_chunks(), down.most_chunks(), kernel.products[1].split.chunks});
  kernel.x_stride = chunks * kUnitCols + 8;  // 16 bytes apart in the banks from token to token
  kernel.stages = tuning.stages;
  kernel.tokens = tokens;
  kernel.hidden_width = hidden;
  while (kernel.stages >= kLeastStages && block_kernel_shared_bytes(kernel) > tuning.shared_bytes) --kernel.stages;
  const int slots = std::max(out.groups * kernel.slots_a_group[0], down.groups * kernel.slots_a_group[1]);
  const auto values = static_cast<std::size_t>(tokens * hidden);
  const bool partials_fit = static_cast<std::size_t>(slots) * values * sizeof(float) + values * sizeof(bf16) <= kPartialsBytes;
  const bool slice_fits = tokens * hidden / 2 <= grid * kBlockConsumers * 32;  // two values a thread
  if (kernel.stages < kLeastStages || !partials_fit || !slice_fits) return false;

  kernel.mixed = args.mixed.data;
  kernel.residual = args.residual.data;
  kernel.act = args.act.data;
  kernel.projected = args.projected.data;
  kernel.hidden = args.hidden.data;
  kernel.norms[0] = args.post_norm;
  kernel.norms[1] = args.next_norm;
  kernel.partials = partials_;
  kernel.middle = reinterpret_cast<bf16*>(partials_ + static_cast<std::size_t>(slots) * values);
  kernel.barrier = state_;
  kernel.mixed_stride = args.mixed.stride[0];
  kernel.residual_stride = args.residual.stride[0];
  kernel.act_stride = args.act.stride[0];
  kernel.projected_stride = args.projected.stride[0];
  kernel.hidden_stride = args.hidden.stride[0];
  kernel.mixed_width = static_cast<int>(args.out.cols);
  kernel.act_width = static_cast<int>(args.down.cols);
  kernel.projected_width = static_cast<int>(args.next.rows);
  kernel.in_flight_busy = std::min(tuning.in_flight_busy, kernel.stages - 1);
  kernel.in_flight_idle = std::min(tuning.in_flight_idle, kernel.stages - 1);
  kernel.share = (tokens * hidden / 2 + grid - 1) / grid;
  kernel.eps = args.eps;
  TANDEM_TRY(launch_block_kernel(context, kernel));
  return true;
}

}  // namespace tandem::ops::cuda
