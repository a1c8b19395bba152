#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/matrix_units.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int D = kDeltaHeadDim;
constexpr int kRow = D + 8;        // elements of a token's row in shared memory, so that no banks conflict
constexpr int kSquare = kChunk + 8;
constexpr int kFloatRow = kChunk + 1;

struct Shared {
  bf16 query[kChunk][kRow];
  bf16 key[kChunk][kRow];
  bf16 value[kChunk][kRow];        // one head at a time; then U and W on their way out
  bf16 by_value[kChunk][kSquare];  // T diag(beta)
  bf16 by_key[kChunk][kSquare];    // T diag(beta exp(G))
  float a[kChunk][kFloatRow];      // A below the diagonal, then (I + A)^-1
  float product[32][33];           // of the inversion
  float keys[kChunk][kFloatRow];   // K K^T
  float g[kChunk], beta[kChunk];   // G: the decays' logarithms, summed from the chunk's start
};

// Channels 2 * pair, 2 * pair + 1 of every token of the chunk: short convolution and SiLU (spec 3.4.2),
// written as bf16 at `to`. `channel` is the pair's first channel of the projection.
__device__ void convolve_pair(const DeltaMixerArgs& args, const ChunkPlace& place, int channel, bf16* to) {
  const bf16* const u = args.projected.data + channel;
  const float4 w0 = *reinterpret_cast<const float4*>(args.params.conv_weight + channel * kConvTaps);
  const float4 w1 = *reinterpret_cast<const float4*>(args.params.conv_weight + (channel + 1) * kConvTaps);
  float past0[kConvWindow], past1[kConvWindow];
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i) {
    const int t = place.begin - kConvWindow + i;
    past0[i] = past1[i] = 0.0f;
    if (t >= place.row.token_begin) {
      const unsigned pair = *reinterpret_cast<const unsigned*>(u + t * args.projected.stride[0]);
      past0[i] = low_f32(pair), past1[i] = high_f32(pair);
    } else if (place.row.base_pos > 0 && t - place.row.token_begin >= -kConvWindow) {
      const bf16* window = args.state.conv + place.row.slot * args.state.conv_stride + channel * kConvWindow + kConvWindow + (t - place.row.token_begin);
      past0[i] = to_f32(window[0]), past1[i] = to_f32(window[kConvWindow]);
    }
  }
  // Many tokens' loads are in flight at once; tokens past the end read the last one and count as zero.
  constexpr int kAtOnce = 16;
  for (int base = 0; base < kChunk; base += kAtOnce) {
    unsigned pairs[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      pairs[i] = *reinterpret_cast<const unsigned*>(u + (place.begin + min(base + i, place.count - 1)) * args.projected.stride[0]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float x0 = low_f32(pairs[i]), x1 = high_f32(pairs[i]);
      const float m0 = silu(round_b16(w0.x * past0[0] + w0.y * past0[1] + w0.z * past0[2] + w0.w * x0));
      const float m1 = silu(round_b16(w1.x * past1[0] + w1.y * past1[1] + w1.z * past1[2] + w1.w * x1));
      past0[0] = past0[1], past0[1] = past0[2], past0[2] = x0;
      past1[0] = past1[1], past1[1] = past1[2], past1[2] = x1;
      *reinterpret_cast<unsigned*>(to + (base + i) * kRow) = base + i < place.count ? pack_b16(m0, m1) : 0;
    }
  }
}

// Rows become unit vectors times `scale`, and go to device memory too.
__device__ void normalise_rows(bf16 (*rows)[kRow], float scale, bf16* out, std::int64_t out_stride, int count) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int t = warp; t < kChunk; t += kWarps) {
    auto* const mine = reinterpret_cast<uint2*>(&rows[t][lane * 4]);
    const uint2 word = *mine;
    const float x0 = low_f32(word.x), x1 = high_f32(word.x), x2 = low_f32(word.y), x3 = high_f32(word.y);
    const float length = rsqrtf(warp_sum(x0 * x0 + x1 * x1 + x2 * x2 + x3 * x3) + 1e-6f) * scale;
    const uint2 unit = make_uint2(pack_b16(x0 * length, x1 * length), pack_b16(x2 * length, x3 * length));
    *mine = unit;
    if (t < count) *reinterpret_cast<uint2*>(out + t * out_stride + lane * 4) = unit;
  }
}

// c [16, 32] += rows [16, 128] of `left` times rows [32, 128] of `right` transposed.
__device__ __forceinline__ void rows_by_rows(float (&c)[4][4], const bf16 (*left)[kRow], const bf16 (*right)[kRow], int lane) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    std::uint32_t a[4], b[4];
    load_matrices(a, &left[lane & 15][16 * k + (lane >> 4) * 8]);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      // Matrices: tokens 0-7 | k 0-7, tokens 0-7 | k 8-15, tokens 8-15 | k 0-7, tokens 8-15 | k 8-15.
      load_matrices(b, &right[pair * 16 + (lane & 7) + (lane >> 4) * 8][16 * k + ((lane >> 3) & 1) * 8]);
      multiply_add(c[2 * pair], a, b[0], b[1]);
      multiply_add(c[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// (I + A)^-1 of the unit lower triangular I + A, in place: diagonal blocks of 16 by substitution, then twice
// the rule  [[P, 0], [R, Q]]^-1 = [[P', 0], [-Q' R P', Q']]  for blocks of 16 and of 32.
__device__ void invert(Shared& shared) {
  const int thread = threadIdx.x;
  if (thread < kChunk) {
    const int block = thread / 16 * 16, column = thread % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < i; ++j) sum -= shared.a[block + i][block + j] * x[j];
      x[i] = sum;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16; ++i) shared.a[block + i][block + column] = i >= column ? x[i] : 0.0f;
  }
  __syncthreads();
#pragma unroll
  for (int size = 16; size <= 32; size *= 2) {
    for (int top = 0; top < kChunk; top += 2 * size) {
      // product = R P'
      for (int i = thread; i < size * size; i += kThreads) {
        const int r = i / size, c = i % size;
        float sum = 0.0f;
        for (int k = c; k < size; ++k) sum += shared.a[top + size + r][top + k] * shared.a[top + k][top + c];
        shared.product[r][c] = sum;
      }
      __syncthreads();
      for (int i = thread; i < size * size; i += kThreads) {
        const int r = i / size, c = i % size;
        float sum = 0.0f;
        for (int k = 0; k <= r; ++k) sum -= shared.a[top + size + r][top + size + k] * shared.product[k][c];
        shared.a[top + size + r][top + c] = sum;
      }
      __syncthreads();
    }
  }
}

// [64, 128] = square [64, 64] times rows [64, 128]; through shared memory (`stage`) to device memory.
__device__ void square_by_rows(const bf16 (*square)[kSquare], const bf16 (*rows)[kRow], bf16 (*stage)[kRow], bf16* out,
                               std::int64_t out_stride, int count) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_row = warp / 2 * 16, first_column = warp % 2 * 64;
  float c[8][4] = {};
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    if (16 * k > first_row) break;  // the square is lower triangular
    std::uint32_t a[4], b[4];
    load_matrices(a, &square[first_row + (lane & 15)][16 * k + (lane >> 4) * 8]);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      // Matrices: k 0-7 | columns 0-7, k 8-15 | columns 0-7, k 0-7 | columns 8-15, k 8-15 | columns 8-15.
      load_matrices_transposed(b, &rows[16 * k + (lane & 15)][first_column + pair * 16 + (lane >> 4) * 8]);
      multiply_add(c[2 * pair], a, b[0], b[1]);
      multiply_add(c[2 * pair + 1], a, b[2], b[3]);
    }
  }
  __syncthreads();  // `stage` may be `rows`
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int column = first_column + 8 * n + 2 * (lane & 3), row = first_row + lane / 4;
    *reinterpret_cast<unsigned*>(&stage[row][column]) = pack_b16(c[n][0], c[n][1]);
    *reinterpret_cast<unsigned*>(&stage[row + 8][column]) = pack_b16(c[n][2], c[n][3]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count * (D / 8); i += kThreads) {
    const int t = i / (D / 8), at = i % (D / 8) * 8;
    *reinterpret_cast<uint4*>(out + t * out_stride + at) = *reinterpret_cast<const uint4*>(&stage[t][at]);
  }
  __syncthreads();
}

// One block a chunk and key head, with the value heads that share it, one after another.
__global__ void __launch_bounds__(kThreads) chunk_prepare_kernel(DeviceStep step, DeltaMixerArgs args, ChunkScratch scratch) {
  extern __shared__ __align__(16) char dynamic[];
  auto& shared = *reinterpret_cast<Shared*>(dynamic);
  const ChunkPlace place = find_chunk(step, blockIdx.x);
  const int key_head = blockIdx.y;
  const int key_heads = args.shape.key_heads, value_heads = args.shape.value_heads;
  const int heads_a_key = value_heads / key_heads;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;

  if (thread < D / 2)
    convolve_pair(args, place, key_head * D + 2 * thread, &shared.query[0][2 * thread]);
  else if (thread < D)
    convolve_pair(args, place, (key_heads + key_head) * D + 2 * (thread - D / 2), &shared.key[0][2 * (thread - D / 2)]);
  else if (thread < D + D / 2)
    convolve_pair(args, place, 2 * key_heads * D + key_head * heads_a_key * D + 2 * (thread - D), &shared.value[0][2 * (thread - D)]);
  __syncthreads();
  const std::int64_t key_stride = std::int64_t{key_heads} * D, value_stride = std::int64_t{value_heads} * D;
  normalise_rows(shared.query, 0.08838834764831845f, scratch.query + place.begin * key_stride + key_head * D, key_stride, place.count);
  normalise_rows(shared.key, 1.0f, scratch.key + place.begin * key_stride + key_head * D, key_stride, place.count);
  __syncthreads();

  // Warp w: rows 16 (w / 2) .. +15, columns 32 (w % 2) .. +31 of Q K^T and K K^T.
  const int first_row = warp / 2 * 16, first_column = warp % 2 * 32;
  float scores[4][4] = {}, keys[4][4] = {};
  if (first_column <= first_row + 15) {
    rows_by_rows(scores, shared.query + first_row, shared.key + first_column, lane);
    rows_by_rows(keys, shared.key + first_row, shared.key + first_column, lane);
  }
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      shared.keys[first_row + lane / 4 + (i / 2) * 8][first_column + 8 * n + 2 * (lane & 3) + i % 2] = keys[n][i];

  for (int h = 0; h < heads_a_key; ++h) {
    const int head = key_head * heads_a_key + h;
    if (h > 0 && thread >= D && thread < D + D / 2)
      convolve_pair(args, place, 2 * key_heads * D + head * D + 2 * (thread - D), &shared.value[0][2 * (thread - D)]);
    if (warp == 0) {
      // Two neighbouring tokens a lane, then a sum over the lanes before.
      float g[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int t = 2 * lane + i;
        g[i] = 0.0f;
        float beta = 0.0f;
        if (t < place.count) {
          const bf16* gates = args.projected.data + (place.begin + t) * args.projected.stride[0] + args.shape.channels() + args.shape.value_width();
          const float a = to_f32(gates[value_heads + head]) + args.params.dt_bias[head];
          const float softplus = a > 20.0f ? a : log1pf(expf(a));
          g[i] = -expf(args.params.a_log[head]) * softplus;
          beta = round_b16(1.0f / (1.0f + expf(-to_f32(gates[head]))));
        }
        shared.beta[t] = beta;
      }
      float total = g[0] + g[1];
#pragma unroll
      for (int offset = 1; offset < 32; offset <<= 1) {
        const float before = __shfl_up_sync(0xffffffffu, total, offset);
        if (lane >= offset) total += before;
      }
      shared.g[2 * lane] = total - g[1];
      shared.g[2 * lane + 1] = total;
    }
    __syncthreads();

    // This head's score rows: masked before the exponential, whose upper half would overflow.
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = first_row + lane / 4 + half * 8, j = first_column + 8 * n + 2 * (lane & 3);
        const float s0 = j <= i ? scores[n][2 * half] * __expf(shared.g[i] - shared.g[j]) : 0.0f;
        const float s1 = j + 1 <= i ? scores[n][2 * half + 1] * __expf(shared.g[i] - shared.g[j + 1]) : 0.0f;
        if (i < place.count)
          *reinterpret_cast<unsigned*>(scratch.scores + ((place.begin + i) * std::int64_t{value_heads} + head) * kScoreRow + j * 2) = pack_b16(s0, s1);
      }
    if (thread < place.count)
      *reinterpret_cast<float*>(scratch.scores + ((place.begin + thread) * std::int64_t{value_heads} + head) * kScoreRow + kChunk * 2) = shared.g[thread];
    for (int i = thread; i < kChunk * kChunk; i += kThreads) {
      const int r = i / kChunk, c = i % kChunk;
      shared.a[r][c] = r > c ? shared.beta[r] * shared.keys[r][c] * __expf(shared.g[r] - shared.g[c]) : 0.0f;
    }
    __syncthreads();
    invert(shared);
    for (int i = thread; i < kChunk * kChunk / 2; i += kThreads) {
      const int r = i / (kChunk / 2), c = i % (kChunk / 2) * 2;
      const float t0 = shared.a[r][c] * shared.beta[c], t1 = shared.a[r][c + 1] * shared.beta[c + 1];
      *reinterpret_cast<unsigned*>(&shared.by_value[r][c]) = pack_b16(t0, t1);
      *reinterpret_cast<unsigned*>(&shared.by_key[r][c]) = pack_b16(t0 * __expf(shared.g[c]), t1 * __expf(shared.g[c + 1]));
    }
    __syncthreads();
    square_by_rows(shared.by_value, shared.value, shared.value, scratch.u + place.begin * value_stride + head * D, value_stride, place.count);
    square_by_rows(shared.by_key, shared.key, shared.value, scratch.w + place.begin * value_stride + head * D, value_stride, place.count);
  }
}

}  // namespace

Result<void> allow_chunk_prepare() {
  return checked(cudaFuncSetAttribute(chunk_prepare_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)), "delta chunks");
}

Result<void> chunk_prepare(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args, int chunks) {
  chunk_prepare_kernel<<<dim3(chunks, args.shape.key_heads), kThreads, sizeof(Shared), context.stream>>>(step, args, chunk_scratch(args));
  return launched("delta chunks");
}

}  // namespace tandem::ops::cuda
