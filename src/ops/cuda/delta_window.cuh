#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/device_math.cuh"
#include "ops/delta.h"

// The conv window: a request's last three inputs of the short convolution, oldest first, [C, 3] bf16 a slot.
namespace tandem::ops::cuda {

// The input of `channel`, `back` tokens before token `t` of `row`: from this step, from the conv window, or
// zero before the request's start.
__device__ __forceinline__ float input_before(const View<const bf16, 2>& projected, const DeltaState& state, const DeviceRow& row, int t, int back,
                                              int channel) {
  const int at = t - back;
  if (at >= row.token_begin) return to_f32(projected.data[at * projected.stride[0] + channel]);
  const int place = kConvWindow + (at - row.token_begin);
  if (row.base_pos == 0 || place < 0) return 0.0f;
  return to_f32(state.conv[row.slot * state.conv_stride + channel * kConvWindow + place]);
}

// The row's last three inputs become the window. Only when nobody reads the old one any more.
__device__ __forceinline__ void advance_window(const View<const bf16, 2>& projected, const DeltaState& state, const DeviceRow& row, int channel) {
  float inputs[kConvWindow];
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i)
    inputs[i] = input_before(projected, state, row, row.token_begin + row.tokens - 1, kConvWindow - 1 - i, channel);
  bf16* const window = state.conv + row.slot * state.conv_stride + channel * kConvWindow;
#pragma unroll
  for (int i = 0; i < kConvWindow; ++i) window[i] = to_b16(inputs[i]);
}

}  // namespace tandem::ops::cuda
