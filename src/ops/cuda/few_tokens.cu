#include "ops/cuda/device_math.cuh"
#include "ops/cuda/few_tokens.cuh"
#include "ops/cuda/few_tokens_products.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/tensor_map.h"

// The weight's rows are the rows of the matrix units' products and tokens their columns, so that few tokens waste
// nothing. A block computes 64 * kGroups outputs of all tokens from its share of the inputs; the blocks that share a
// tile form a cluster and add their sums through each other's shared memory, in order.
namespace tandem::ops::cuda {
namespace {

constexpr int kStep = kFewTokensStep, kTileBytes = kFewTokensTileBytes, kMostStages = kFewTokensMostStages, kMostSplits = kFewTokensMostSplits;

struct Product {
  bf16* y;
  std::int64_t y_stride;
  int tokens;
  int outputs;  // of y
  int steps;    // of kStep inputs, all splits together
  int stages;
};

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Four floats at `address` of this block's shared memory, read in the cluster's block `rank`.
__device__ __forceinline__ float4 load_from(std::uint32_t address, int rank) {
  float4 value;
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}\n"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

__device__ __forceinline__ float4 sum_over_splits(std::uint32_t address, int splits) {
  float4 part[kMostSplits];
#pragma unroll
  for (int s = 0; s < kMostSplits; ++s)
    if (s < splits) part[s] = load_from(address, s);
  float4 sum = part[0];
#pragma unroll
  for (int s = 1; s < kMostSplits; ++s)
    if (s < splits) sum.x += part[s].x, sum.y += part[s].y, sum.z += part[s].z, sum.w += part[s].w;
  return sum;
}

__device__ __forceinline__ float swiglu_of(float gate, float up) { return round_b16(silu(round_b16(gate))) * round_b16(up); }

// Grid: splits (a cluster) x tiles of outputs. Warpgroups multiply, 64 rows of the weight each; one more warp fetches.
// kSwiglu: the first half of the groups holds gate rows, the second the up rows of the same channels.
template <int kTokens, int kGroups, bool kSwiglu>
__global__ void __launch_bounds__(kGroups * 128 + 32)
    few_tokens_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map, Product product) {
  constexpr int kTile = kGroups * 64 / (kSwiglu ? 2 : 1);  // outputs of the block
  constexpr int kWeightBytes = kGroups * kTileBytes, kStageBytes = kWeightBytes + kTokens * kStep * 2;
  constexpr int kRow = kGroups * 64 + 4;  // floats from token to token of the sums: no two lanes in one bank
  extern __shared__ char dynamic[];
  __shared__ std::uint64_t there[kMostStages], free_again[kMostStages];
  char* const stages = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const int split = blockIdx.x, splits = gridDim.x, tile = blockIdx.y;
  const int first = product.steps * split / splits, count = product.steps * (split + 1) / splits - first;
  const int group = static_cast<int>(threadIdx.x) / 128, lane = threadIdx.x & 31;

  let_next_start();
  if (threadIdx.x == 0) {
    for (int s = 0; s < product.stages; ++s) {
      barrier_init(&there[s], 1);
      barrier_init(&free_again[s], kGroups * 4);
    }
    barrier_init_fence();
  }
  __syncthreads();

  if (group == kGroups) {
    if (lane == 0) {
      const auto fetch_weight = [&](int i) {
        const int s = i % product.stages;
        barrier_expect(&there[s], kStageBytes);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const bool up = kSwiglu && g >= kGroups / 2;
          const int row = tile * kTile + (up ? product.outputs + (g - kGroups / 2) * 64 : g * 64);
          tensor_load(stages + s * kStageBytes + g * kTileBytes, &weight_map, (first + i) * kStep, row, &there[s]);
        }
      };
      const auto fetch_x = [&](int i) {
        const int s = i % product.stages;
        tensor_load(stages + s * kStageBytes + kWeightBytes, &x_map, (first + i) * kStep, 0, &there[s]);
      };
      asm volatile("prefetch.tensormap [%0];" ::"l"(&x_map) : "memory");
      // The weight does not depend on the kernel before this one.
      const int ahead = min(count, product.stages);
      for (int i = 0; i < ahead; ++i) fetch_weight(i);
      wait_for_inputs();
      for (int i = 0; i < ahead; ++i) fetch_x(i);
      for (int i = ahead; i < count; ++i) {
        barrier_wait(&free_again[i % product.stages], (i / product.stages - 1) & 1);
        fetch_weight(i);
        fetch_x(i);
      }
    }
    __syncwarp();
  } else {
    float sum[kTokens / 2];
    for (int i = 0; i < count; ++i) {
      const int s = i % product.stages;
      barrier_wait(&there[s], (i / product.stages) & 1);
      const std::uint32_t weight = shared_address(stages + s * kStageBytes + group * kTileBytes);
      const std::uint32_t x = shared_address(stages + s * kStageBytes + kWeightBytes);
      products_begin();
#pragma unroll
      for (int k = 0; k < kStep / 16; ++k)
        product_tokens(sum, swizzled(weight + k * 32, 1024, 0), swizzled(x + k * 32, 1024, 0), i > 0 || k > 0);
      products_commit();
      if (i > 0) {
        products_wait<1>();
        if (lane == 0) barrier_arrive(&free_again[(i - 1) % product.stages]);
      }
    }
    products_wait<0>();
    // Every group has read every stage: the sums take their place.
    asm volatile("bar.sync 1, %0;" ::"n"(kGroups * 128) : "memory");
    auto* const sums = reinterpret_cast<float*>(stages);
    const int row = group * 64 + (threadIdx.x / 32 % 4) * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[(8 * j + 2 * (lane & 3) + (c & 1)) * kRow + row + (c & 2 ? 8 : 0)] = sum[4 * j + c];
  }

  if (splits > 1)
    cluster_sync();
  else
    __syncthreads();
  if (group < kGroups) {
    constexpr int kQuads = kTile / 4;
    const std::uint32_t sums = shared_address(stages);
    for (int at = threadIdx.x; ; at += kGroups * 128) {
      const int token = split + splits * (at / kQuads), quad = at % kQuads * 4;
      if (token >= product.tokens) break;
      const std::uint32_t address = sums + (token * kRow + quad) * 4;
      float4 value = sum_over_splits(address, splits);
      if constexpr (kSwiglu) {
        const float4 up = sum_over_splits(address + kTile * 4, splits);
        value = make_float4(swiglu_of(value.x, up.x), swiglu_of(value.y, up.y), swiglu_of(value.z, up.z), swiglu_of(value.w, up.w));
      }
      const int output = tile * kTile + quad;
      if (output < product.outputs)
        *reinterpret_cast<uint2*>(product.y + token * product.y_stride + output) = make_uint2(pack_b16(value.x, value.y), pack_b16(value.z, value.w));
    }
  }
  if (splits > 1) cluster_sync();  // nobody leaves while others read its sums
}

using Kernel = void (*)(CUtensorMap, CUtensorMap, Product);

template <int kTokens>
Kernel kernel_of(GemmOp op, int groups) {
  if (op == GemmOp::Swiglu) return groups == 2 ? few_tokens_kernel<kTokens, 2, true> : few_tokens_kernel<kTokens, 4, true>;
  return groups == 1   ? few_tokens_kernel<kTokens, 1, false>
         : groups == 2 ? few_tokens_kernel<kTokens, 2, false>
                       : few_tokens_kernel<kTokens, 4, false>;
}

Kernel kernel_for(GemmOp op, int groups, int tokens) {
  switch (few_tokens_built_for(tokens)) {
    case 16: return kernel_of<16>(op, groups);
    case 32: return kernel_of<32>(op, groups);
    case 64: return kernel_of<64>(op, groups);
    default: return kernel_of<128>(op, groups);
  }
}

int outputs_of_tile(GemmOp op, int groups) { return groups * 64 / (op == GemmOp::Swiglu ? 2 : 1); }

}  // namespace

Result<void> prepare_few_tokens() {
  for (const int tokens : {16, 32, 64, 128})
    for (const GemmOp op : {GemmOp::Linear, GemmOp::Swiglu})
      for (const int groups : {1, 2, 4})
        if (op == GemmOp::Linear || groups > 1)
          TANDEM_TRY(checked(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_for(op, groups, tokens)),
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kFewTokensSharedLimit)),
                             "few_tokens"));
  return {};
}

Result<void> few_tokens(const Context& context, GemmOp op, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y,
                        const FewTokensPlan& plan) {
  const int tokens = static_cast<int>(x.size(0));
  if (tokens == 0) return {};
  TANDEM_TRY(check_few_tokens(op, weight.rows, weight.cols, tokens, plan));
  if (!weight.tiles || x.stride[0] % 8 != 0 || y.stride[0] % 8 != 0)
    return fail(ErrorKind::Unsupported, "few-tokens: rows of x, y and the weight start at multiples of 16 bytes");
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(weight.cols), static_cast<std::uint64_t>(tokens)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(x.stride[0]) * sizeof(bf16)};
  const std::uint32_t box[] = {kStep, static_cast<std::uint32_t>(few_tokens_built_for(tokens))};
  TANDEM_ASSIGN(const CUtensorMap x_map, tensor_map(x.data, sizes, strides, box));
  const int outputs = static_cast<int>(op == GemmOp::Swiglu ? weight.rows / 2 : weight.rows), tile = outputs_of_tile(op, plan.groups);
  const Product product{.y = y.data, .y_stride = y.stride[0], .tokens = tokens, .outputs = outputs,
                        .steps = static_cast<int>((weight.cols + kStep - 1) / kStep), .stages = plan.stages};
  const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.splits), static_cast<unsigned>((outputs + tile - 1) / tile)),
                  .threads = dim3(static_cast<unsigned>(plan.groups * 128 + 32)),
                  .shared_bytes = few_tokens_shared_bytes(plan, tokens),
                  .cluster = static_cast<unsigned>(plan.splits)};
  return launch_early(context, "few_tokens", kernel_for(op, plan.groups, tokens), grid, *weight.tiles, x_map, product);
}

}  // namespace tandem::ops::cuda
