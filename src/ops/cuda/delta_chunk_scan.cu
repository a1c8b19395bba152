#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/matrix_units.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int D = kDeltaHeadDim;
constexpr int kColumns = kWarps * 16;  // value dimensions of a block: 16 a warp
constexpr int kStages = 3;
constexpr int kRow = D + 8;            // elements of a token's row in shared memory, so that no banks conflict
constexpr int kValueRow = kColumns + 8;
constexpr int kScores = kScoreRowUsed / 2;

struct Stage {
  bf16 w[kChunk][kRow];
  bf16 query[kChunk][kRow];
  bf16 key[kChunk][kRow];
  bf16 u[kChunk][kValueRow];    // then the answer on its way out
  bf16 scores[kChunk][kScores];  // 64 scores, then G
};
struct Shared {
  Stage stage[kStages];
};

// One block a row, value head and half of its value dimensions; each warp has 16 of them and works alone.
// Everything is transposed, so that what one product leaves in registers is the left side of the next:
//
//   V'^T = U^T - S^T W^T      O^T = (S^T Q^T) exp(G) + V'^T scores^T      S^T = S^T exp(G_last) + (V' exp(G_last - G))^T K
//
// S^T [16, 128] of the warp stays in float32 registers from the row's first chunk to its last.
__global__ void __launch_bounds__(kThreads, 1) chunk_scan_kernel(DeviceStep step, DeltaMixerArgs args, ChunkScratch scratch) {
  extern __shared__ __align__(128) char dynamic[];
  auto& shared = *reinterpret_cast<Shared*>(dynamic);
  const DeviceRow row = step.rows[step.decode_rows + blockIdx.y];
  constexpr int kHalves = D / kColumns;
  const int head = blockIdx.x / kHalves, first_column = blockIdx.x % kHalves * kColumns;
  const int value_heads = args.shape.value_heads, key_heads = args.shape.key_heads;
  const int key_head = head / (value_heads / key_heads);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int chunks = (row.tokens + kChunk - 1) / kChunk;

  const auto count_of = [&](int chunk) { return min(kChunk, row.tokens - chunk * kChunk); };
  // 16 bytes a thread and turn; tokens past the row's end count as zero. One group a chunk, empty past the
  // last one.
  const auto begin_load = [&](int chunk) {
    if (chunk < chunks) {
      Stage& stage = shared.stage[chunk % kStages];
      const int count = count_of(chunk);
      const std::int64_t first = row.token_begin + chunk * kChunk;
      constexpr int kWide = D / 8, kNarrow = kColumns / 8, kScorePieces = kScoreRowUsed / 16;
#pragma unroll 4
      for (int i = thread; i < kChunk * kWide; i += kThreads) {
        const int t = i / kWide, at = i % kWide * 8;
        const bool valid = t < count;
        const std::int64_t token = first + (valid ? t : 0);
        async_copy16(&stage.w[t][at], scratch.w + (token * value_heads + head) * D + at, valid);
        async_copy16(&stage.query[t][at], scratch.query + (token * key_heads + key_head) * D + at, valid);
        async_copy16(&stage.key[t][at], scratch.key + (token * key_heads + key_head) * D + at, valid);
      }
#pragma unroll
      for (int i = thread; i < kChunk * kNarrow; i += kThreads) {
        const int t = i / kNarrow, at = i % kNarrow * 8;
        const bool valid = t < count;
        async_copy16(&stage.u[t][at], scratch.u + ((first + (valid ? t : 0)) * value_heads + head) * D + first_column + at, valid);
      }
      for (int i = thread; i < kChunk * kScorePieces; i += kThreads) {
        const int t = i / kScorePieces, at = i % kScorePieces * 8;
        const bool valid = t < count;
        async_copy16(&stage.scores[t][at], scratch.scores + ((first + (valid ? t : 0)) * value_heads + head) * kScoreRow + at * 2, valid);
      }
    }
    async_commit();
  };
  for (int i = 0; i < kStages - 1; ++i) begin_load(i);

  // S^T: rows first_column + 16 warp + lane / 4 (+ 8), key dimensions 8 n + 2 (lane % 4) (+ 1).
  float s[D / 8][4];
  const int v_row = first_column + warp * 16 + lane / 4;
  float* const state = args.state.state + row.slot * args.state.state_stride + static_cast<std::int64_t>(head) * D * D;
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[n][i] = row.base_pos > 0 ? state[(8 * n + 2 * (lane & 3) + i % 2) * D + v_row + (i / 2) * 8] : 0.0f;

  for (int chunk = 0; chunk < chunks; ++chunk) {
    Stage& stage = shared.stage[chunk % kStages];
    const int count = count_of(chunk);
    async_wait<kStages - 2>();
    __syncthreads();  // the chunk is there, and the stage of the chunk before is free
    begin_load(chunk + kStages - 1);
    const auto g = [&](int t) { return *reinterpret_cast<const float*>(&stage.scores[t][kChunk]); };
    const float g_last = g(count - 1);

    // The state as the left side of two products.
    std::uint32_t left[D / 16][4];
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      left[k][0] = pack_b16(s[2 * k][0], s[2 * k][1]);
      left[k][1] = pack_b16(s[2 * k][2], s[2 * k][3]);
      left[k][2] = pack_b16(s[2 * k + 1][0], s[2 * k + 1][1]);
      left[k][3] = pack_b16(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
    // V'^T and O^T: tokens 8 n + 2 (lane % 4) (+ 1).
    float v[kChunk / 8][4] = {}, o[kChunk / 8][4] = {};
    // The inner dimension outermost: neighbouring products are independent, and none waits for the last.
    const int token = (lane & 7) + (lane >> 4) * 8, inner = ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
#pragma unroll
      for (int pair = 0; pair < kChunk / 16; ++pair) {
        std::uint32_t b[4];  // key dimensions 16 k + 0-7 and 8-15 of tokens 16 pair + 0-7, then of 8-15
        load_matrices(b, &stage.w[16 * pair + token][16 * k + inner]);
        multiply_add(v[2 * pair], left[k], b[0], b[1]);
        multiply_add(v[2 * pair + 1], left[k], b[2], b[3]);
        load_matrices(b, &stage.query[16 * pair + token][16 * k + inner]);
        multiply_add(o[2 * pair], left[k], b[0], b[1]);
        multiply_add(o[2 * pair + 1], left[k], b[2], b[3]);
      }
    std::uint32_t plain[kChunk / 16][4], decayed[kChunk / 16][4];  // V'^T as a left side; the second for the state
#pragma unroll
    for (int n = 0; n < kChunk / 8; n += 2) {
      std::uint32_t u[4];  // tokens 8 n .. +7 and 8 n + 8 .. +15, value dimensions 0-7 and 8-15 of the warp
      load_matrices_transposed(u, &stage.u[8 * n + (lane & 7) + (lane >> 4) * 8][warp * 16 + ((lane >> 3) & 1) * 8]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = 8 * (n + half) + 2 * (lane & 3);
        const std::uint32_t low = u[2 * half], high = u[2 * half + 1];
        const float x0 = low_f32(low) - v[n + half][0], x1 = high_f32(low) - v[n + half][1];
        const float x2 = low_f32(high) - v[n + half][2], x3 = high_f32(high) - v[n + half][3];
        const float f0 = t < count ? __expf(g_last - g(t)) : 0.0f, f1 = t + 1 < count ? __expf(g_last - g(t + 1)) : 0.0f;
        plain[n / 2][2 * half] = pack_b16(x0, x1);
        plain[n / 2][2 * half + 1] = pack_b16(x2, x3);
        decayed[n / 2][2 * half] = pack_b16(x0 * f0, x1 * f1);
        decayed[n / 2][2 * half + 1] = pack_b16(x2 * f0, x3 * f1);
        const float e0 = __expf(g(t)), e1 = __expf(g(t + 1));
        o[n + half][0] *= e0, o[n + half][1] *= e1, o[n + half][2] *= e0, o[n + half][3] *= e1;
      }
    }
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
#pragma unroll
      for (int pair = k; pair < kChunk / 16; ++pair) {  // scores of later tokens are zero
        std::uint32_t b[4];
        load_matrices(b, &stage.scores[16 * pair + token][16 * k + inner]);
        multiply_add(o[2 * pair], plain[k], b[0], b[1]);
        multiply_add(o[2 * pair + 1], plain[k], b[2], b[3]);
      }
    const float keep = __expf(g_last);
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= keep;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        std::uint32_t b[4];  // tokens 16 k + 0-7 and 8-15 of key dimensions 8 n .. +7, then of 8 n + 8 .. +15
        load_matrices_transposed(b, &stage.key[16 * k + (lane & 15)][8 * n + (lane >> 4) * 8]);
        multiply_add(s[n], decayed[k], b[0], b[1]);
        multiply_add(s[n + 1], decayed[k], b[2], b[3]);
      }
    }

    // The answer, through the warp's own columns of u, 32 bytes a token.
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) stage.u[8 * n + 2 * (lane & 3) + i % 2][warp * 16 + lane / 4 + (i / 2) * 8] = to_b16(o[n][i]);
    __syncwarp();
    for (int i = lane; i < 2 * count; i += 32) {
      const std::int64_t t = row.token_begin + chunk * kChunk + i / 2;
      *reinterpret_cast<uint4*>(args.y.data + t * args.y.stride[0] + head * args.y.stride[1] + first_column + warp * 16 + i % 2 * 8) =
          *reinterpret_cast<const uint4*>(&stage.u[i / 2][warp * 16 + i % 2 * 8]);
    }
  }

#pragma unroll
  for (int n = 0; n < D / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) state[(8 * n + 2 * (lane & 3) + i % 2) * D + v_row + (i / 2) * 8] = s[n][i];
}

}  // namespace

Result<void> allow_chunk_scan() {
  return checked(cudaFuncSetAttribute(chunk_scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)), "delta scan");
}

Result<void> chunk_scan(const Context& context, const DeviceStep& step, const DeltaMixerArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.shape.value_heads * (D / kColumns)), static_cast<unsigned>(step.total_rows - step.decode_rows));
  chunk_scan_kernel<<<grid, kThreads, sizeof(Shared), context.stream>>>(step, args, chunk_scratch(args));
  return launched("delta scan");
}

}  // namespace tandem::ops::cuda
