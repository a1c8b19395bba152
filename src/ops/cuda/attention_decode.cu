#include <algorithm>

#include "ops/cuda/attention_cuda.cuh"
#include "ops/cuda/device_math.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kKeysAtOnce = 4;  // keys whose loads a warp keeps in flight
constexpr int kMostSplits = 64;
constexpr int kBlocksWanted = 264;  // two a multiprocessor

// Of one token, query head and split: the largest score, the sum of exp(score - largest), and the
// weighted values.
struct Partial {
  float largest, sum;
  float values[kHeadDim];
};

int splits_for(int tokens, int kv_heads) {
  return std::clamp(kBlocksWanted / std::max(1, tokens * kv_heads), 1, kMostSplits);
}

__device__ __forceinline__ void widen(uint4 word, float (&x)[8]) {
  x[0] = low_f32(word.x), x[1] = high_f32(word.x), x[2] = low_f32(word.y), x[3] = high_f32(word.y);
  x[4] = low_f32(word.z), x[5] = high_f32(word.z), x[6] = low_f32(word.w), x[7] = high_f32(word.w);
}

// One block a token, kv head and split of the pages; its warps take keys in turn, all query heads of the
// group at once, so K and V are read once. Lane l holds dimensions 8l .. 8l+7.
template <int kGroup>
__global__ void __launch_bounds__(kWarps * 32)
    split_kernel(DeviceStep step, AttentionArgs args, Partial* partials, int first_token, int splits) {
  __shared__ float warp_largest[kWarps][kGroup], warp_sums[kWarps][kGroup];
  __shared__ float combined[kWarps][kHeadDim];

  const int t = first_token + blockIdx.x, kv_head = blockIdx.y, split = blockIdx.z;
  const TokenInfo token = step.tokens[t];
  const int keys = token.pos + 1;
  const int pages = (keys + kPageTokens - 1) / kPageTokens;
  const int pages_a_split = (pages + splits - 1) / splits;
  const int begin = min(keys, split * pages_a_split * kPageTokens);
  const int end = min(keys, begin + pages_a_split * kPageTokens);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

  float q[kGroup][8], values[kGroup][8], largest[kGroup], sum[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    widen(*reinterpret_cast<const uint4*>(args.q.data + t * args.q.stride[0] + (kv_head * kGroup + g) * args.q.stride[1] + lane * 8), q[g]);
    largest[g] = -INFINITY;
    sum[g] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) values[g][i] = 0.0f;
  }

  const std::int32_t* pages_of_slot = step.page_table + static_cast<std::int64_t>(token.slot) * step.max_pages;
  for (int base = begin + warp * kKeysAtOnce; base < end; base += kWarps * kKeysAtOnce) {
    const bf16* page = args.kv.base + pages_of_slot[base / kPageTokens] * args.kv.page_stride +
                       (static_cast<std::int64_t>(kv_head) * kPageTokens + base % kPageTokens) * kHeadDim + lane * 8;
    uint4 k[kKeysAtOnce], v[kKeysAtOnce];
#pragma unroll
    for (int j = 0; j < kKeysAtOnce; ++j) k[j] = *reinterpret_cast<const uint4*>(page + j * kHeadDim);
#pragma unroll
    for (int j = 0; j < kKeysAtOnce; ++j) v[j] = *reinterpret_cast<const uint4*>(page + args.kv.v_offset + j * kHeadDim);
    float score[kKeysAtOnce][kGroup];
#pragma unroll
    for (int j = 0; j < kKeysAtOnce; ++j) {
      float key[8];
      widen(k[j], key);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) dot += q[g][i] * key[i];
        score[j][g] = base + j < end ? warp_sum(dot) * 0.0625f : -INFINITY;
      }
    }
    float weight[kKeysAtOnce][kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      float top = largest[g];
#pragma unroll
      for (int j = 0; j < kKeysAtOnce; ++j) top = fmaxf(top, score[j][g]);
      const float shrink = __expf(largest[g] - top);
      largest[g] = top;
      sum[g] *= shrink;
#pragma unroll
      for (int j = 0; j < kKeysAtOnce; ++j) {
        weight[j][g] = __expf(score[j][g] - top);
        sum[g] += weight[j][g];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) values[g][i] *= shrink;
    }
#pragma unroll
    for (int j = 0; j < kKeysAtOnce; ++j) {
      if (base + j >= end) break;  // a page's unwritten tail may hold anything, NaN too
      float value[8];
      widen(v[j], value);
#pragma unroll
      for (int g = 0; g < kGroup; ++g)
#pragma unroll
        for (int i = 0; i < 8; ++i) values[g][i] += weight[j][g] * value[i];
    }
  }

  if (lane == 0)
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      warp_largest[warp][g] = largest[g];
      warp_sums[warp][g] = sum[g];
    }
  __syncthreads();
  const int query_heads = args.kv.kv_heads * kGroup;
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float top = -INFINITY, total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, warp_largest[w][g]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      if (warp_sums[w][g] > 0.0f) total += warp_sums[w][g] * __expf(warp_largest[w][g] - top);
    const float scale = sum[g] > 0.0f ? __expf(largest[g] - top) : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) combined[warp][lane * 8 + i] = values[g][i] * scale;
    __syncthreads();
    Partial& out = partials[(static_cast<std::int64_t>(blockIdx.x) * query_heads + kv_head * kGroup + g) * splits + split];
    for (int i = threadIdx.x; i < kHeadDim; i += kWarps * 32) {
      float x = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) x += combined[w][i];
      out.values[i] = x;
    }
    if (threadIdx.x == 0) {
      out.largest = top;
      out.sum = total;
    }
    __syncthreads();
  }
}

// One block a token and query head: the splits' partials meet, then the output gate.
__global__ void __launch_bounds__(kHeadDim)
    combine_kernel(AttentionArgs args, const Partial* partials, int first_token, int splits) {
  const int t = first_token + blockIdx.x, head = blockIdx.y, i = threadIdx.x;
  const Partial* mine = partials + (static_cast<std::int64_t>(blockIdx.x) * gridDim.y + head) * splits;
  float top = -INFINITY;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, mine[s].largest);
  float total = 0.0f, x = 0.0f;
  for (int s = 0; s < splits; ++s) {
    if (mine[s].sum == 0.0f) continue;
    const float scale = __expf(mine[s].largest - top);
    total += mine[s].sum * scale;
    x += mine[s].values[i] * scale;
  }
  const float gate = to_f32(args.gate.data[t * args.gate.stride[0] + head * args.gate.stride[1] + i]);
  args.y.data[t * args.y.stride[0] + head * args.y.stride[1] + i] = to_b16(round_b16(x / total) * round_b16(sigmoid(gate)));
}

template <int kGroup>
Result<void> launch(const Context& context, const DeviceStep& step, const AttentionArgs& args, Partial* partials,
                    int first_token, int tokens) {
  const int kv_heads = args.kv.kv_heads, splits = splits_for(tokens, kv_heads);
  split_kernel<kGroup><<<dim3(tokens, kv_heads, splits), kWarps * 32, 0, context.stream>>>(step, args, partials,
                                                                                           first_token, splits);
  TANDEM_TRY(launched("attention_decode"));
  combine_kernel<<<dim3(tokens, kv_heads * kGroup), kHeadDim, 0, context.stream>>>(args, partials, first_token, splits);
  return launched("attention_decode, combine");
}

}  // namespace

std::size_t decode_partials_bytes(int max_rows, int query_heads) {
  return sizeof(Partial) * static_cast<std::size_t>(query_heads) * static_cast<std::size_t>(max_rows + kBlocksWanted);
}

Result<void> attention_tokens(const Context& context, const DeviceStep& step, const AttentionArgs& args, float* partials,
                              int first_token, int tokens) {
  if (tokens == 0) return {};
  auto* const out = reinterpret_cast<Partial*>(partials);
  const auto group = static_cast<int>(args.q.size(1)) / args.kv.kv_heads;
  switch (group) {
    case 1: return launch<1>(context, step, args, out, first_token, tokens);
    case 2: return launch<2>(context, step, args, out, first_token, tokens);
    case 3: return launch<3>(context, step, args, out, first_token, tokens);
    case 4: return launch<4>(context, step, args, out, first_token, tokens);
    case 6: return launch<6>(context, step, args, out, first_token, tokens);
    case 8: return launch<8>(context, step, args, out, first_token, tokens);
    default:
      return fail(ErrorKind::Unsupported, "[attention] " + std::to_string(group) +
                                              " query heads a kv head; this backend has kernels for 1, 2, 3, 4, 6 and 8");
  }
}

Result<void> attention_decode(const Context& context, const DeviceStep& step, const AttentionArgs& args, float* partials) {
  return attention_tokens(context, step, args, partials, 0, step.decode_rows);
}

}  // namespace tandem::ops::cuda
