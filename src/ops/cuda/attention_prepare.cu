#include "ops/cuda/attention_prepare.cuh"

#include <cmath>

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kWarps = 4;

// theta^(-2i/64) as Hugging Face computes it, in float32 on the host.
struct InverseFrequencies {
  float value[kRotaryDim / 2];
};

InverseFrequencies inverse_frequencies(float theta) {
  InverseFrequencies table;
  for (int i = 0; i < kRotaryDim / 2; ++i)
    table.value[i] = 1.0f / std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(kRotaryDim));
  return table;
}

// Lane l holds dimensions 8l .. 8l+7 of its head, so dimension d < 32 and its rotary partner d + 32
// lie four lanes apart (lanes 0-3 and 4-7).
__global__ void prepare_kernel(DeviceStep step, AttentionPrepareArgs args, InverseFrequencies rotary,
                               int query_heads, int work) {
  let_next_start();
  wait_for_inputs();
  const int item = blockIdx.x * kWarps + (threadIdx.x >> 5);
  if (item >= work) return;
  const int lane = threadIdx.x & 31;
  const int kv_heads = args.kv.kv_heads;
  const int heads = query_heads + 2 * kv_heads;
  const int t = item / heads, head = item % heads;
  const TokenInfo token = step.tokens[t];

  const bool is_query = head < query_heads;
  const bool is_key = !is_query && head < query_heads + kv_heads;
  const int kv_head = is_query ? 0 : (head - query_heads) % kv_heads;
  const int column = is_query ? head * 2 * kHeadDim : 2 * query_heads * kHeadDim + (head - query_heads) * kHeadDim;
  const uint4 raw = *reinterpret_cast<const uint4*>(args.projected.data + t * args.projected.stride[0] + column + lane * 8);

  bf16* to;
  if (is_query) {
    to = args.q.data + t * args.q.stride[0] + head * args.q.stride[1] + lane * 8;
  } else {
    const int page = step.page_table[static_cast<std::int64_t>(token.slot) * step.max_pages + token.pos / kPageTokens];
    to = args.kv.base + page * args.kv.page_stride + (is_key ? 0 : args.kv.v_offset) +
         (static_cast<std::int64_t>(kv_head) * kPageTokens + token.pos % kPageTokens) * kHeadDim + lane * 8;
    if (!is_key) {
      *reinterpret_cast<uint4*>(to) = raw;
      return;
    }
  }

  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  float x[8];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = low_f32(words[i]);
    x[2 * i + 1] = high_f32(words[i]);
    squares += x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1];
  }
  const float scale = rsqrtf(warp_sum(squares) * (1.0f / kHeadDim) + args.eps);
  const float* weight = (is_query ? args.q_norm : args.k_norm) + lane * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = round_b16(x[i] * scale * (1.0f + weight[i]));

#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float partner = __shfl_xor_sync(0xffffffffu, x[i], 4);
    if (lane < 8) {
      const int pair = (lane & 3) * 8 + i;
      float sine, cosine;
      sincosf(static_cast<float>(token.pos) * rotary.value[pair], &sine, &cosine);
      const float c = round_b16(cosine), s = round_b16(sine);
      x[i] = round_b16(round_b16(x[i] * c) + round_b16((lane < 4 ? -partner : partner) * s));
    }
  }
  *reinterpret_cast<uint4*>(to) =
      make_uint4(pack_b16(x[0], x[1]), pack_b16(x[2], x[3]), pack_b16(x[4], x[5]), pack_b16(x[6], x[7]));
}

}  // namespace

Result<void> attention_prepare(const Context& context, const DeviceStep& step, const AttentionPrepareArgs& args) {
  if (step.total_tokens == 0) return {};
  const auto query_heads = static_cast<int>(args.q.size(1));
  const int work = step.total_tokens * (query_heads + 2 * args.kv.kv_heads);
  return launch_early(context, "attention_prepare", prepare_kernel,
                      {dim3(static_cast<unsigned>((work + kWarps - 1) / kWarps)), dim3(kWarps * 32)}, step, args,
                      inverse_frequencies(args.rope_theta), query_heads, work);
}

}  // namespace tandem::ops::cuda
