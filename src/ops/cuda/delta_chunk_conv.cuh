#pragma once

#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/delta_tile.cuh"

namespace tandem::ops::cuda {

inline constexpr int kTokensAWarp = 16;  // of a chunk's 64, that one warp convolves

// What a warp convolves at a time: 16 tokens of one head's 128 channels, four neighbouring channels a lane. The
// inputs wait in the tiles that take the results; a lane reads and writes its own 8 bytes of a token.
struct ConvItem {
  Tile* tiles;                // the head's two
  int quarter;                // tokens 16 quarter .. + 15 of the chunk
  uint2 before[kConvWindow];  // the lane's channels of the three tokens before
  float4 weight[4];
};

__device__ __forceinline__ char* conv_at(const ConvItem& item, int t) {
  const int lane = threadIdx.x & 31;
  return tile_at(&item.tiles[lane / 16], item.quarter * kTokensAWarp + t, lane % 16 * 4);
}

// `channel` is the lane's first channel of the projection. One group of async copies; tokens past the row's end
// read its last one.
__device__ __forceinline__ ConvItem begin_conv(Tile* tiles, int quarter, int channel, const DeltaMixerArgs& args, const ChunkPlace& place) {
  ConvItem item{.tiles = tiles, .quarter = quarter};
  const std::int64_t stride = args.projected.stride[0];
  const bf16* const u = args.projected.data + channel;
  const int first = place.begin + quarter * kTokensAWarp, last = place.begin + place.count - 1;
#pragma unroll
  for (int t = 0; t < kTokensAWarp; ++t)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(conv_at(item, t))), "l"(u + min(first + t, last) * stride) : "memory");
  async_commit();
  if (first - kConvWindow >= place.row.token_begin) {
#pragma unroll
    for (int i = 0; i < kConvWindow; ++i)
      item.before[i] = *reinterpret_cast<const uint2*>(u + min(first - kConvWindow + i, last) * stride);
  } else {
    // The row's first tokens: what came before lies in the conv window, or there was nothing.
    const bf16* const window = args.state.conv + place.row.slot * args.state.conv_stride + channel * kConvWindow;
#pragma unroll
    for (int i = 0; i < kConvWindow; ++i) {
      const auto at = [&](int c) -> unsigned { return window[c * kConvWindow + i].bits; };
      item.before[i] = place.row.base_pos > 0 ? make_uint2(at(0) | at(1) << 16, at(2) | at(3) << 16) : make_uint2(0, 0);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) item.weight[c] = *reinterpret_cast<const float4*>(args.params.conv_weight + (channel + c) * kConvTaps);
  return item;
}

// Sums over the warp of 16 numbers at once: each exchange halves how many of them a lane is about, and in the
// end lanes 2 t and 2 t + 1 hold the t-th sum.
template <int kCount>
__device__ __forceinline__ float sum_each(const float (&x)[kCount]) {
  const int lane = threadIdx.x & 31;
  if constexpr (kCount == 1) {
    return x[0] + __shfl_xor_sync(0xffffffffu, x[0], 1);
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = lane & kCount;
    float half[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i)
      half[i] = (upper ? x[i + kHalf] : x[i]) + __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + kHalf], kCount);
    return sum_each(half);
  }
}

// Short convolution and SiLU (spec 3.4.2), with both of its roundings, of an item whose copies have arrived; with
// kUnit, each token's 128 channels become a vector of length `scale` (spec 3.4.6). Tokens past the row's `count`
// become zero. The caller fences before the matrix units or the copy engine read the tiles.
template <bool kUnit>
__device__ __forceinline__ void convolve(const ConvItem& item, int count, float scale) {
  float x[4][kConvWindow + 1];
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i) {
    x[0][i] = low_f32(item.before[i].x), x[1][i] = high_f32(item.before[i].x);
    x[2][i] = low_f32(item.before[i].y), x[3][i] = high_f32(item.before[i].y);
  }
  uint2 out[kTokensAWarp];
  float squares[kTokensAWarp];
#pragma unroll
  for (int t = 0; t < kTokensAWarp; ++t) {
    const uint2 now = *reinterpret_cast<const uint2*>(conv_at(item, t));
    x[0][3] = low_f32(now.x), x[1][3] = high_f32(now.x), x[2][3] = low_f32(now.y), x[3][3] = high_f32(now.y);
    float sum[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float4 w = item.weight[c];
      sum[c] = w.x * x[c][0] + w.y * x[c][1] + w.z * x[c][2] + w.w * x[c][3];
      x[c][0] = x[c][1], x[c][1] = x[c][2], x[c][2] = x[c][3];
    }
    const unsigned low = pack_b16(sum[0], sum[1]), high = pack_b16(sum[2], sum[3]);
    out[t] = make_uint2(pack_b16(silu_fast(low_f32(low)), silu_fast(high_f32(low))), pack_b16(silu_fast(low_f32(high)), silu_fast(high_f32(high))));
    if constexpr (kUnit) {
      const float a = low_f32(out[t].x), b = high_f32(out[t].x), c = low_f32(out[t].y), d = high_f32(out[t].y);
      squares[t] = a * a + b * b + c * c + d * d;
    } else {
      *reinterpret_cast<uint2*>(conv_at(item, t)) = out[t];
    }
  }
  if constexpr (kUnit) {
    const float factor = rsqrtf(sum_each(squares) + 1e-6f) * scale;
#pragma unroll
    for (int t = 0; t < kTokensAWarp; ++t) {
      const float f = __shfl_sync(0xffffffffu, factor, 2 * t);
      *reinterpret_cast<uint2*>(conv_at(item, t)) =
          make_uint2(pack_b16(low_f32(out[t].x) * f, high_f32(out[t].x) * f), pack_b16(low_f32(out[t].y) * f, high_f32(out[t].y) * f));
    }
  }
  for (int t = max(0, count - item.quarter * kTokensAWarp); t < kTokensAWarp; ++t) *reinterpret_cast<uint2*>(conv_at(item, t)) = make_uint2(0, 0);
}

}  // namespace tandem::ops::cuda
