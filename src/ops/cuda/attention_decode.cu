#include <algorithm>

#include "ops/cuda/attention_cuda.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/matrix_units.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kHeads = 8;            // query heads of a group, padded to the product's width
constexpr int kStages = 3;           // pages on their way
constexpr int kRow = kHeadDim + 8;   // elements of a key's row in shared memory: 8 apart, so no bank conflicts
constexpr int kMostSplits = 64;
constexpr int kBlocksWanted = 132;   // one a multiprocessor of an H200
constexpr float kScale = 0.0625f * 1.4426950408889634f;  // 256^-1/2, scores as powers of two

// Of one token, query head and split: the largest score (base 2), the sum of 2^(score - largest), and the
// values weighted by it.
struct Partial {
  float largest, sum;
  float values[kHeadDim];
};

struct Shared {
  bf16 k[kStages][kPageTokens][kRow];
  bf16 v[kStages][kPageTokens][kRow];
  bf16 weights[kPageTokens][kHeads];
  float largest[kWarps][kHeads];
  float sums[kWarps][kHeads];
};

int splits_for(int tokens, int kv_heads) {
  return std::clamp(kBlocksWanted / std::max(1, tokens * kv_heads), 1, kMostSplits);
}

// One block a token, kv head and split of the pages, all query heads of the group at once: scores are
// K [64, 256] times Q^T [256, 8], the answer is V^T [256, 64] times weights [64, 8]. Warp w has keys
// 16w .. 16w+15 of the scores and dimensions 64w .. 64w+63 of the answer. Pages stream through shared memory.
__global__ void __launch_bounds__(kThreads)
    split_kernel(DeviceStep step, AttentionArgs args, Partial* partials, int first_token, int splits, int group) {
  extern __shared__ __align__(128) char dynamic[];
  auto& shared = *reinterpret_cast<Shared*>(dynamic);
  let_next_start();
  wait_for_inputs();
  const int t = first_token + blockIdx.x, kv_head = blockIdx.y, split = blockIdx.z;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const TokenInfo token = step.tokens[t];
  const int keys = token.pos + 1;
  const int pages = (keys + kPageTokens - 1) / kPageTokens;
  const int pages_a_split = (pages + splits - 1) / splits;
  const int first_page = min(pages, split * pages_a_split), end_page = min(pages, first_page + pages_a_split);
  const std::int32_t* const table = step.page_table + static_cast<std::int64_t>(token.slot) * step.max_pages;

  // Every thread copies its 16 bytes of every fourth row; rows past the last key become zero, since a weight
  // of zero needs a value that is a number. One group a page, empty past the last one.
  const auto begin_load = [&](int page) {
    if (page < end_page) {
      const int stage = (page - first_page) % kStages;
      const int rows = keys - page * kPageTokens;  // may exceed the page
      const bf16* from = args.kv.base + table[page] * args.kv.page_stride + static_cast<std::int64_t>(kv_head) * kPageTokens * kHeadDim + lane * 8;
#pragma unroll 8
      for (int r = warp; r < kPageTokens; r += kWarps) {
        async_copy16(&shared.k[stage][r][lane * 8], from + r * kHeadDim, r < rows);
        async_copy16(&shared.v[stage][r][lane * 8], from + args.kv.v_offset + r * kHeadDim, r < rows);
      }
    }
    async_commit();
  };
  for (int i = 0; i < kStages - 1; ++i) begin_load(first_page + i);

  // Q^T: head lane / 4, dimensions 16 k + 2 (lane % 4) + {0, 1, 8, 9}.
  std::uint32_t q[kHeadDim / 16][2];
  const int head = lane / 4;
  const bf16* const query = args.q.data + t * args.q.stride[0] + (kv_head * group + min(head, group - 1)) * args.q.stride[1] + 2 * (lane & 3);
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    q[k][0] = head < group ? *reinterpret_cast<const std::uint32_t*>(query + 16 * k) : 0;
    q[k][1] = head < group ? *reinterpret_cast<const std::uint32_t*>(query + 16 * k + 8) : 0;
  }

  // Of heads 2 (lane % 4) and the next: the largest score so far, this thread's share of the sum, the answer.
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  float answer[4][4] = {};
  for (int page = first_page; page < end_page; ++page) {
    const int stage = (page - first_page) % kStages;
    async_wait<kStages - 2>();
    __syncthreads();  // the page is there, and the stage of the page before is free
    begin_load(page + kStages - 1);
    const int rows = keys - page * kPageTokens;

    float score[4] = {};
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      std::uint32_t a[4];
      load_matrices(a, &shared.k[stage][warp * 16 + (lane & 15)][16 * k + (lane >> 4) * 8]);
      multiply_add(score, a, q[k][0], q[k][1]);
    }
    const int key = warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) score[i] = key + (i >= 2 ? 8 : 0) < rows ? score[i] * kScale : -INFINITY;
    float top[2] = {fmaxf(score[0], score[2]), fmaxf(score[1], score[3])};
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int offset = 4; offset < 32; offset <<= 1) top[c] = fmaxf(top[c], __shfl_xor_sync(0xffffffffu, top[c], offset));
    if (lane < 4) {
      shared.largest[warp][2 * lane] = top[0];
      shared.largest[warp][2 * lane + 1] = top[1];
    }
    __syncthreads();
    float shrink[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float now = largest[c];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) now = fmaxf(now, shared.largest[w][2 * (lane & 3) + c]);
      shrink[c] = exp2f(largest[c] - now);
      largest[c] = now;
      score[c] = exp2f(score[c] - now);
      score[c + 2] = exp2f(score[c + 2] - now);
      sum[c] = sum[c] * shrink[c] + score[c] + score[c + 2];
    }
    *reinterpret_cast<unsigned*>(&shared.weights[key][2 * (lane & 3)]) = pack_b16(score[0], score[1]);
    *reinterpret_cast<unsigned*>(&shared.weights[key + 8][2 * (lane & 3)]) = pack_b16(score[2], score[3]);
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) answer[m][i] *= shrink[i & 1];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kPageTokens / 16; ++k) {
      std::uint32_t b[4];
      load_matrices_transposed(b, &shared.weights[16 * k + (lane & 15)][0]);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        std::uint32_t a[4];
        // Matrices: keys 0-7 | dims 0-7, keys 0-7 | dims 8-15, keys 8-15 | dims 0-7, keys 8-15 | dims 8-15.
        load_matrices_transposed(a, &shared.v[stage][16 * k + (lane & 7) + (lane >> 4) * 8][warp * 64 + m * 16 + ((lane >> 3) & 1) * 8]);
        multiply_add(answer[m], a, b[0], b[1]);
      }
    }
  }

#pragma unroll
  for (int c = 0; c < 2; ++c)
#pragma unroll
    for (int offset = 4; offset < 32; offset <<= 1) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], offset);
  if (lane < 4) {
    shared.sums[warp][2 * lane] = sum[0];
    shared.sums[warp][2 * lane + 1] = sum[1];
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int g = 2 * (lane & 3) + c;
    if (g >= group) continue;
    const int query_head = kv_head * group + g;
    const float total = shared.sums[0][g] + shared.sums[1][g] + shared.sums[2][g] + shared.sums[3][g];
    Partial& out = partials[(static_cast<std::int64_t>(blockIdx.x) * args.kv.kv_heads * group + query_head) * splits + split];
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dim = warp * 64 + m * 16 + half * 8 + lane / 4;
        const float value = answer[m][half * 2 + c];
        if (splits == 1) {
          const float gate = to_f32(args.gate.data[t * args.gate.stride[0] + query_head * args.gate.stride[1] + dim]);
          args.y.data[t * args.y.stride[0] + query_head * args.y.stride[1] + dim] =
              to_b16(round_b16(value / total) * round_b16(sigmoid(gate)));
        } else {
          out.values[dim] = value;
        }
      }
    if (splits > 1 && warp == 0 && lane < 4) {
      out.largest = largest[c];
      out.sum = total;
    }
  }
}

// One block a token and query head: the splits' partials meet, then the output gate.
__global__ void __launch_bounds__(kHeadDim)
    combine_kernel(AttentionArgs args, const Partial* partials, int first_token, int splits) {
  let_next_start();
  wait_for_inputs();
  const int t = first_token + blockIdx.x, head = blockIdx.y, i = threadIdx.x;
  const Partial* mine = partials + (static_cast<std::int64_t>(blockIdx.x) * gridDim.y + head) * splits;
  float top = -INFINITY;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, mine[s].sum > 0.0f ? mine[s].largest : -INFINITY);
  float total = 0.0f, x = 0.0f;
  for (int s = 0; s < splits; ++s) {
    if (mine[s].sum == 0.0f) continue;
    const float scale = exp2f(mine[s].largest - top);
    total += mine[s].sum * scale;
    x += mine[s].values[i] * scale;
  }
  const float gate = to_f32(args.gate.data[t * args.gate.stride[0] + head * args.gate.stride[1] + i]);
  args.y.data[t * args.y.stride[0] + head * args.y.stride[1] + i] = to_b16(round_b16(x / total) * round_b16(sigmoid(gate)));
}

}  // namespace

Result<void> prepare_attention_decode() {
  return checked(cudaFuncSetAttribute(split_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)), "attention_decode");
}

std::size_t decode_partials_bytes(int max_rows, int query_heads) {
  return sizeof(Partial) * static_cast<std::size_t>(query_heads) * static_cast<std::size_t>(max_rows + kBlocksWanted);
}

Result<void> attention_tokens(const Context& context, const DeviceStep& step, const AttentionArgs& args, float* partials,
                              int first_token, int tokens) {
  if (tokens == 0) return {};
  const int kv_heads = args.kv.kv_heads;
  const auto group = static_cast<int>(args.q.size(1)) / kv_heads;
  if (group > kHeads)
    return fail(ErrorKind::Unsupported, "[attention] " + std::to_string(group) + " query heads a kv head; this backend takes up to 8");
  auto* const out = reinterpret_cast<Partial*>(partials);
  const int splits = splits_for(tokens, kv_heads);
  const auto count = static_cast<unsigned>(tokens);
  TANDEM_TRY(launch_early(context, "attention_decode", split_kernel,
                          {dim3(count, static_cast<unsigned>(kv_heads), static_cast<unsigned>(splits)), dim3(kThreads), sizeof(Shared)}, step, args,
                          out, first_token, splits, group));
  if (splits == 1) return {};
  return launch_early(context, "attention_decode, combine", combine_kernel,
                      {dim3(count, static_cast<unsigned>(kv_heads * group)), dim3(kHeadDim)}, args, out, first_token, splits);
}

Result<void> attention_decode(const Context& context, const DeviceStep& step, const AttentionArgs& args, float* partials) {
  return attention_tokens(context, step, args, partials, 0, step.decode_rows);
}

}  // namespace tandem::ops::cuda
