#pragma once

#include "ops/cuda/delta_tile.cuh"

// T = (I + A)^-1 of a chunk (spec 3.5), A [64, 64] strictly lower triangular, by the four warps of a warpgroup.
// Blocks of 16: the diagonal's are inverted by substitution in float32, the others follow column by column,
//
//   T_ij = -T_ii (A_ij T_jj + A_i,j+1 T_j+1,j + ... + A_i,i-1 T_i-1,j)      i > j
//
// each warp one column j, which needs nothing of the others' but the diagonal. Stable however alike the keys
// are, where products of powers of A are not. The sums are on the matrix units in tf32: its 2^-11 is well
// below the rounding to bf16 that T meets next.
namespace tandem::ops::cuda {

inline constexpr int kSolveBlock = 16;
inline constexpr int kSolveRow = kSolveBlock + 8;  // floats of a block's row, so that no banks conflict
inline constexpr int kSolveBlocks = 10;            // on and below the diagonal

using SolveBlock = float[kSolveBlock][kSolveRow];

// Block (i, j), i >= j.
__device__ __forceinline__ SolveBlock& solve_block(SolveBlock* blocks, int i, int j) { return blocks[i * (i + 1) / 2 + j]; }

__device__ __forceinline__ float round_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

// One warp: A_ii in shared memory becomes (I + A_ii)^-1. Lane c < 16 solves for column c.
__device__ __forceinline__ void invert_diagonal(SolveBlock& a) {
  const int column = threadIdx.x & 15;
  float x[kSolveBlock];
#pragma unroll
  for (int i = 0; i < kSolveBlock; ++i) {
    float sum[4] = {i == column ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};  // four chains, for latency
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 row = *reinterpret_cast<const float4*>(&a[i][j]);
      sum[0] -= row.x * x[j];
      if (j + 1 < i) sum[1] -= row.y * x[j + 1];
      if (j + 2 < i) sum[2] -= row.z * x[j + 2];
      if (j + 3 < i) sum[3] -= row.w * x[j + 3];
    }
    x[i] = sum[0] + sum[1] + (sum[2] + sum[3]);
  }
  __syncwarp();
  if ((threadIdx.x & 31) < kSolveBlock) {
#pragma unroll
    for (int i = 0; i < kSolveBlock; ++i) a[i][column] = round_tf32(x[i]);
  }
}

// c [16, 16] += x [16, 16] b^T, b [16, 16] row by row in shared memory. x and c as sums of warp-wide products lie:
// c[4 n + ...] is row lane / 4 (+ 8), columns 8 n + 2 (lane % 4) (+ 1). A product's inner dimension may come in
// any order: here a lane's columns 2 q and 2 q + 1 stand for q and q + 4, so x needs no exchange between lanes.
__device__ __forceinline__ void add_product_transposed(float (&c)[8], const float (&x)[8], const SolveBlock& b) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 right = *reinterpret_cast<const float2*>(&b[8 * n + lane / 4][8 * k + 2 * (lane & 3)]);
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(c[4 * n]), "+f"(c[4 * n + 1]), "+f"(c[4 * n + 2]), "+f"(c[4 * n + 3])
                   : "r"(__float_as_uint(x[4 * k])), "r"(__float_as_uint(x[4 * k + 2])), "r"(__float_as_uint(x[4 * k + 1])),
                     "r"(__float_as_uint(x[4 * k + 3])), "r"(__float_as_uint(right.x)), "r"(__float_as_uint(right.y)));
    }
}

// One warp: column j of T, transposed: x[i] = (T_ij)^T, zero for i < j. The blocks hold A below the diagonal
// (rounded to tf32) and the inverses on it.
__device__ __forceinline__ void solve_column(float (&x)[4][8], SolveBlock* blocks, int j) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) x[i][e] = 0.0f;
    if (i == j) {
      const SolveBlock& inverse = solve_block(blocks, i, i);
#pragma unroll
      for (int e = 0; e < 8; ++e) x[i][e] = inverse[8 * (e / 4) + 2 * (lane & 3) + e % 2][lane / 4 + e % 4 / 2 * 8];
    } else if (i > j) {
      float sum[8] = {};
#pragma unroll
      for (int k = 0; k < 3; ++k)
        if (k >= j && k < i) add_product_transposed(sum, x[k], solve_block(blocks, i, k));
#pragma unroll
      for (float& e : sum) e = round_tf32(-e);
      add_product_transposed(x[i], sum, solve_block(blocks, i, i));
#pragma unroll
      for (float& e : x[i]) e = round_tf32(e);
    }
  }
}

}  // namespace tandem::ops::cuda
