#include "ops/cuda/device_math.cuh"
#include "ops/cuda/embed.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kThreads = 128;

// One block a token; 16 bytes a thread and turn.
__global__ void embed_kernel(DeviceStep step, EmbedArgs args) {
  let_next_start();
  wait_for_inputs();
  const TokenInfo token = step.tokens[blockIdx.x];
  const std::int64_t id = token.id >= 0 ? token.id : step.last_sampled[token.slot];
  const auto* from = reinterpret_cast<const uint4*>(args.weight.table + id * args.weight.hidden);
  auto* to = reinterpret_cast<uint4*>(args.x.data + blockIdx.x * args.x.stride[0]);
  for (int i = threadIdx.x; i < args.weight.hidden / 8; i += kThreads) to[i] = __ldg(from + i);
}

__global__ void page_update_kernel(DeviceStep step) {
  const auto* updates = reinterpret_cast<const PageUpdate*>(reinterpret_cast<const char*>(step.header) +
                                                            step.header->page_update_offset);
  for (int i = threadIdx.x; i < step.header->page_updates; i += blockDim.x) {
    const PageUpdate update = updates[i];
    step.page_table[static_cast<std::int64_t>(update.slot) * step.max_pages + update.index] = update.page;
  }
}

__global__ void store_kernel(DeviceStep step, const std::int32_t* ids) {
  for (int i = threadIdx.x; i < step.header->logit_rows; i += blockDim.x)
    if (step.logit_rows[i].target < 0) step.last_sampled[step.logit_rows[i].slot] = ids[i];
}

}  // namespace

Result<void> apply_page_updates(const Context& context, const DeviceStep& step) {
  page_update_kernel<<<1, 256, 0, context.stream>>>(step);
  return launched("page_update");
}

Result<void> embed(const Context& context, const DeviceStep& step, const EmbedArgs& args) {
  if (step.total_tokens == 0) return {};
  return launch_early(context, "embed", embed_kernel, {dim3(static_cast<unsigned>(step.total_tokens)), dim3(kThreads)}, step, args);
}

Result<void> store_last_sampled(const Context& context, const DeviceStep& step, const std::int32_t* ids) {
  store_kernel<<<1, 128, 0, context.stream>>>(step, ids);
  return launched("store_last_sampled");
}

}  // namespace tandem::ops::cuda
