#include <algorithm>

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear_stream.cuh"
#include "ops/cuda/matrix_units.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kTile = 8;                   // weight rows of one product, the width of the instruction
constexpr int kInputsABlock = 32;          // inputs a warp takes at once: 16 bytes a lane
constexpr int kMostTilesAPass = 20;        // whose partial sums fit shared memory
constexpr int kPad = 32;                   // elements between rows of x in shared memory, against bank conflicts
constexpr int kMostShared = 227 * 1024;
constexpr int kRegistersInFlight = 64;     // of loaded weights a thread

struct Stream {
  View<const bf16, 2> x;
  const bf16* weight;
  View<bf16, 2> y;
  int cols;
  int rows;          // outputs: rows of the weight, or half of them with SwiGLU
  int rows_a_block;  // outputs of one thread block, the last one fewer
  int parts;         // a warp's share of the inputs is this many times kBlocks blocks
};

// Every block has its own outputs and all inputs; warp w takes inputs [w, w + 1) * cols / 8 of every
// tile of 8 weight rows, and the warps' partial sums meet in shared memory after a pass of up to
// kMostTilesAPass tiles. Tokens are the rows of the product, weight rows its columns. The order of the
// inputs within a block of 32 is permuted alike on both sides, so that a lane's 16 bytes of a weight row
// are its fragments for two products.
template <int kBlocks, bool kSwiglu>
__global__ void __launch_bounds__(kThreads, 2) stream_kernel(Stream args) {
  constexpr int kDepth = std::max(1, kRegistersInFlight / (4 * kBlocks));
  extern __shared__ __align__(16) char dynamic[];
  const int tokens = static_cast<int>(args.x.shape[0]);
  const int x_row = args.cols + kPad;
  auto* const x = reinterpret_cast<bf16*>(dynamic);
  auto* const partial = reinterpret_cast<float2*>(dynamic + static_cast<std::size_t>(tokens) * x_row * sizeof(bf16));  // [tile][warp][lane]
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;

  const int first = blockIdx.x * args.rows_a_block;
  const int rows = min(args.rows_a_block, args.rows - first);
  const int row_tiles = (rows + kTile - 1) / kTile;
  const int tiles = kSwiglu ? 2 * row_tiles : row_tiles;  // with SwiGLU gate and up tiles alternate
  const int steps = tiles * args.parts;
  const int input = warp * args.parts * kBlocks * kInputsABlock + (lane & 3) * 8;

  const auto load = [&](int step, uint4 (&to)[kBlocks]) {
    const int tile = step / args.parts, part = step % args.parts;
    const int row = (kSwiglu ? tile / 2 : tile) * kTile + lane / 4;
    const bool valid = step < steps && row < rows;
    const std::int64_t weight_row = first + row + (kSwiglu && tile % 2 ? args.rows : 0);
    const bf16* from = args.weight + weight_row * args.cols + input + part * kBlocks * kInputsABlock;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
      to[b] = valid ? __ldcs(reinterpret_cast<const uint4*>(from + b * kInputsABlock)) : make_uint4(0, 0, 0, 0);
  };

  uint4 loaded[kDepth][kBlocks];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) load(d, loaded[d]);
  let_next_start();
  wait_for_inputs();

  for (int t = 0; t < tokens; ++t)
    for (int i = thread * 8; i < args.cols; i += kThreads * 8)
      *reinterpret_cast<uint4*>(x + t * x_row + i) = *reinterpret_cast<const uint4*>(args.x.data + t * args.x.stride[0] + i);
  __syncthreads();

  const bool has_token = lane / 4 < tokens;
  const bf16* const mine = x + (lane / 4) * x_row + input;
  float sum[4] = {};
  int pass_begin = 0;  // first tile of the pass
  for (int base = 0; base < steps; base += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const int step = base + d;
      if (step >= steps) break;
      const int tile = step / args.parts, part = step % args.parts;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint4 w = loaded[d][b];
        const uint4 a = has_token ? *reinterpret_cast<const uint4*>(mine + (part * kBlocks + b) * kInputsABlock) : make_uint4(0, 0, 0, 0);
        multiply_add(sum, {a.x, 0, a.y, 0}, w.x, w.y);
        multiply_add(sum, {a.z, 0, a.w, 0}, w.z, w.w);
      }
      load(step + kDepth, loaded[d]);
      if (part + 1 < args.parts) continue;
      partial[((tile - pass_begin) * kWarps + warp) * 32 + lane] = make_float2(sum[0], sum[1]);
      sum[0] = sum[1] = 0.0f;
      const int in_pass = tile - pass_begin + 1;
      if (in_pass < kMostTilesAPass && tile + 1 < tiles) continue;

      __syncthreads();
      // Output (tile, token, row of the tile) by the thread that has lane 4 token + row / 2 of the fragment.
      const int outputs = (kSwiglu ? in_pass / 2 : in_pass) * tokens * kTile;
      for (int i = thread; i < outputs; i += kThreads) {
        const int row_tile = i / (tokens * kTile), token = i / kTile % tokens, row = i % kTile;
        const auto total = [&](int local_tile) {
          const auto* from = reinterpret_cast<const float*>(partial + local_tile * kWarps * 32) + (token * 4 + row / 2) * 2 + row % 2;
          float value = 0.0f;
#pragma unroll
          for (int w = 0; w < kWarps; ++w) value += from[w * 64];
          return value;
        };
        const int output = ((kSwiglu ? pass_begin / 2 : pass_begin) + row_tile) * kTile + row;
        if (output >= rows) continue;
        bf16 value;
        if constexpr (kSwiglu)
          value = to_b16(round_b16(silu(round_b16(total(2 * row_tile)))) * round_b16(total(2 * row_tile + 1)));
        else
          value = to_b16(total(row_tile));
        args.y.data[token * args.y.stride[0] + first + output] = value;
      }
      __syncthreads();
      pass_begin = tile + 1;
    }
  }
}

struct Split {
  int blocks, parts;
};

// cols / 256 blocks of 32 inputs for each of 8 warps, as parts times a compiled number of blocks.
Split split_of(std::int64_t cols) {
  if (cols % (kWarps * kInputsABlock) != 0) return {0, 0};
  const auto total = static_cast<int>(cols / (kWarps * kInputsABlock));
  for (int blocks = 9; blocks >= 3; --blocks)
    if (total % blocks == 0) return {blocks, total / blocks};
  return total <= 2 ? Split{total, 1} : Split{0, 0};
}

std::size_t shared_bytes(std::int64_t cols, std::int64_t tokens, int tiles) {
  return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols + kPad) * sizeof(bf16) +
         static_cast<std::size_t>(std::min(tiles, kMostTilesAPass)) * kThreads * sizeof(float2);
}

template <int kBlocks, bool kSwiglu>
Result<void> launch(const Context& context, const Stream& args, int grid, std::size_t shared) {
  return launch_early(context, "linear_stream", stream_kernel<kBlocks, kSwiglu>,
                      {dim3(static_cast<unsigned>(grid)), dim3(kThreads), shared}, args);
}

template <bool kSwiglu>
Result<void> run(const Context& context, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y) {
  const Split split = split_of(weight.cols);
  const auto rows = static_cast<int>(kSwiglu ? weight.rows / 2 : weight.rows);
  const int rows_a_block = (rows + context.multiprocessors - 1) / context.multiprocessors;
  const int grid = (rows + rows_a_block - 1) / rows_a_block;
  const int tiles = (kSwiglu ? 2 : 1) * ((rows_a_block + kTile - 1) / kTile);
  const Stream args{x, weight.data, y, static_cast<int>(weight.cols), rows, rows_a_block, split.parts};
  const std::size_t shared = shared_bytes(weight.cols, x.size(0), tiles);
  switch (split.blocks) {
    case 1: return launch<1, kSwiglu>(context, args, grid, shared);
    case 2: return launch<2, kSwiglu>(context, args, grid, shared);
    case 3: return launch<3, kSwiglu>(context, args, grid, shared);
    case 4: return launch<4, kSwiglu>(context, args, grid, shared);
    case 5: return launch<5, kSwiglu>(context, args, grid, shared);
    case 6: return launch<6, kSwiglu>(context, args, grid, shared);
    case 7: return launch<7, kSwiglu>(context, args, grid, shared);
    case 8: return launch<8, kSwiglu>(context, args, grid, shared);
    default: return launch<9, kSwiglu>(context, args, grid, shared);
  }
}

template <int kBlocks>
Result<void> allow_shared() {
  TANDEM_TRY(checked(cudaFuncSetAttribute(stream_kernel<kBlocks, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared), "linear_stream"));
  return checked(cudaFuncSetAttribute(stream_kernel<kBlocks, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared), "swiglu_stream");
}

}  // namespace

bool can_stream(const DeviceMatrix& weight, std::int64_t tokens) {
  return tokens <= kMostStreamTokens && split_of(weight.cols).blocks > 0 &&
         shared_bytes(weight.cols, tokens, kMostTilesAPass) <= kMostShared;
}

Result<void> linear_stream(const Context& context, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y) {
  return run<false>(context, x, weight, y);
}

Result<void> swiglu_stream(const Context& context, View<const bf16, 2> x, const DeviceMatrix& weight, View<bf16, 2> y) {
  return run<true>(context, x, weight, y);
}

Result<void> prepare_linear_stream() {
  TANDEM_TRY(allow_shared<1>());
  TANDEM_TRY(allow_shared<2>());
  TANDEM_TRY(allow_shared<3>());
  TANDEM_TRY(allow_shared<4>());
  TANDEM_TRY(allow_shared<5>());
  TANDEM_TRY(allow_shared<6>());
  TANDEM_TRY(allow_shared<7>());
  TANDEM_TRY(allow_shared<8>());
  return allow_shared<9>();
}

}  // namespace tandem::ops::cuda
