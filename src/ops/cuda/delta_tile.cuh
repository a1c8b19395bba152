#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/matrix_units.cuh"
#include "ops/cuda/warpgroup.cuh"

// Tiles of the chunked delta rule and the products over them. A tile is 64 rows of 64 bf16 in 8 KiB: row r's
// eight 16-byte pieces lie in the order (piece ^ r % 8), which is the 128-byte swizzle of the warpgroup
// products and lets warps read rows or columns of 8x8 matrices without bank conflicts.
namespace tandem::ops::cuda {

inline constexpr int kTileBytes = 64 * 128;

struct alignas(1024) Tile {
  char bytes[kTileBytes];
};

// Element (row, column) of a tile; column a multiple of 8 for 16-byte accesses.
__device__ __forceinline__ char* tile_at(Tile* tile, int row, int column) {
  return tile->bytes + row * 128 + (((column >> 3) ^ (row & 7)) << 4) + (column & 7) * 2;
}

// Four 8x8 bf16 matrices from registers; lane l gives the address of row l % 8 of matrix l / 8. Transposed:
// the registers' columns become the rows in memory.
__device__ __forceinline__ void store_matrices(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_matrices_transposed(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// A tile for products whose inner dimension runs along its rows' 64 elements: step k covers 16 of them; a step
// past the tile goes on in the next one.
__device__ __forceinline__ std::uint64_t along_rows(const Tile* tile) { return swizzled(shared_address(tile), 1024, 0); }
__device__ __forceinline__ std::uint64_t along_rows_step(std::uint64_t operand, int k) { return operand + (k / 4 * kTileBytes + k % 4 * 32) / 16; }
// Two neighbouring tiles [64, 128] whose inner dimension is their 64 rows: step k covers 16 of them.
__device__ __forceinline__ std::uint64_t across_rows(const Tile* tiles) { return swizzled(shared_address(tiles), 1024, kTileBytes); }
__device__ __forceinline__ std::uint64_t across_rows_step(std::uint64_t operand, int k) { return operand + k * 16 * 128 / 16; }

// c [64, 64] = (add ? c : 0) + a [64, 16] b [64, 16]^T: a in registers, b as along_rows gives it.
__device__ __forceinline__ void product_along(float (&c)[32], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

// c [64, 128] = (add ? c : 0) + a [64, 16] b [16, 128]: a in registers, b as across_rows gives it.
__device__ __forceinline__ void product_across(float (&c)[64], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
        "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
        "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
        "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

// The four warps of one warpgroup meet; every warpgroup has its own barrier.
__device__ __forceinline__ void warpgroup_barrier(int warpgroup) { asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory"); }

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// x * sigmoid(x) with two approximate units instead of a division: an ulp or two, before a rounding to bf16.
__device__ __forceinline__ float silu_fast(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(1.0f + exp2_fast(-1.4426950408889634f * x)));
  return x * reciprocal;
}

}  // namespace tandem::ops::cuda
