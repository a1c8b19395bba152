// Convolution, delta rule and gated norm. Included by the kernel file of one instruction set.

#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/norm_impl.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr int kDeltaDim = 128;
constexpr int kTaps = 4;
constexpr int kWindow = kTaps - 1;

void convolve(const ConvTask& task) {
  for (int ch = 0; ch < task.channels; ch += kWidth) {
    alignas(64) float taps[kTaps][kWidth];
    alignas(64) bf16 past[kWindow][kWidth];
    bf16* window = task.window + ch * kWindow;
    for (int i = 0; i < kWidth; ++i) {
      for (int j = 0; j < kTaps; ++j) taps[j][i] = task.weight[(ch + i) * kTaps + j];
      for (int j = 0; j < kWindow; ++j) past[j][i] = task.fresh ? bf16{} : window[i * kWindow + j];
    }
    const V w0 = load(taps[0]), w1 = load(taps[1]), w2 = load(taps[2]), w3 = load(taps[3]);
    V u0 = load(past[0]), u1 = load(past[1]), u2 = load(past[2]);
    for (int t = 0; t < task.tokens; ++t) {
      const V u3 = load(task.u + t * task.u_stride + ch);
      // Same order as the reference, nothing fused: equal bits up to exp.
      const V c = add(add(add(mul(w0, u0), mul(w1, u1)), mul(w2, u2)), mul(w3, u3));
      const V m = silu(round_bf16(c));
      if (task.out_bf16 != nullptr) {
        store(task.out_bf16 + t * task.out_stride + ch, m);
      } else {
        store(task.out + t * task.out_stride + ch, round_bf16(m));
      }
      u0 = u1;
      u1 = u2;
      u2 = u3;
    }
    store(past[0], u0);
    store(past[1], u1);
    store(past[2], u2);
    for (int i = 0; i < kWidth; ++i) {
      for (int j = 0; j < kWindow; ++j) window[i * kWindow + j] = past[j][i];
    }
  }
}

void l2_normalize(float* x, float scale) {
  V squares = zero();
  for (int i = 0; i < kDeltaDim; i += kWidth) squares = fma(load(x + i), load(x + i), squares);
  const float inverse = 1.0f / __builtin_sqrtf(sum(squares) + 1e-6f);
  for (int i = 0; i < kDeltaDim; i += kWidth) store(x + i, mul(mul(load(x + i), set(inverse)), set(scale)));
}

// beta = bf(sigmoid(b)), decay = -e^a_log * softplus(a + dt_bias) of one value head for many tokens.
void delta_gates(const DeltaGatesTask& task) {
  const V rate = set(-__builtin_expf(task.a_log)), bias = set(task.dt_bias);
  for (int begin = 0; begin < task.tokens; begin += kWidth) {
    const int count = task.tokens - begin < kWidth ? task.tokens - begin : kWidth;
    alignas(64) float b[kWidth] = {}, a[kWidth] = {};
    for (int i = 0; i < count; ++i) {
      b[i] = widen(task.b[(begin + i) * task.in_stride]);
      a[i] = widen(task.a[(begin + i) * task.in_stride]);
    }
    store(b, round_bf16(sigmoid(load(b))));
    // softplus(x) = max(x, 0) + log1p(e^-|x|); above 20 the second part is less than the first's last place.
    const V x = add(load(a), bias);
    const V y = exp_negative(min(x, sub(zero(), x)));
    const V s = div(y, add(set(2.0f), y));  // log1p(y) = 2 atanh(s), s <= 1/3
    const V s2 = mul(s, s);
    V p = set(1.0f / 17.0f);
    p = fma(p, s2, set(1.0f / 15.0f));
    p = fma(p, s2, set(1.0f / 13.0f));
    p = fma(p, s2, set(1.0f / 11.0f));
    p = fma(p, s2, set(1.0f / 9.0f));
    p = fma(p, s2, set(1.0f / 7.0f));
    p = fma(p, s2, set(1.0f / 5.0f));
    p = fma(p, s2, set(1.0f / 3.0f));
    p = fma(p, s2, set(1.0f));
    // NaN stays NaN: max returns its second operand then.
    store(a, mul(rate, add(max(zero(), x), mul(add(s, s), p))));
    for (int i = 0; i < count; ++i) {
      task.beta[(begin + i) * task.out_stride] = b[i];
      task.decay[(begin + i) * task.out_stride] = a[i];
    }
  }
}

// A slice of the state's value dims.
constexpr int kSliceVectors = 4;
constexpr int kSlice = kSliceVectors * kWidth;

// All tokens on one slice: `slice` row i lies at i * Stride, `begin` is its first value dim.
template <int Stride>
TANDEM_INLINE void run_slice(const DeltaTask& task, float* slice, int begin) {
  for (int t = 0; t < task.tokens; ++t) {
    const float* q = task.q + t * task.qk_stride;
    const float* k = task.k + t * task.qk_stride;
    const V alpha = set(__builtin_expf(task.decay[t * task.head_stride]));
    const V beta = set(task.beta[t * task.head_stride]);

    // What the decayed state answers to k and to q, from one pass over it.
    V read_k[kSliceVectors], read_q[kSliceVectors];
    for (int j = 0; j < kSliceVectors; ++j) read_k[j] = read_q[j] = zero();
    for (int i = 0; i < kDeltaDim; ++i) {
      const V ki = set(k[i]), qi = set(q[i]);
      for (int j = 0; j < kSliceVectors; ++j) {
        const V s = load(slice + i * Stride + j * kWidth);
        read_k[j] = fma(ki, s, read_k[j]);
        read_q[j] = fma(qi, s, read_q[j]);
      }
    }
    V products = zero();
    for (int i = 0; i < kDeltaDim; i += kWidth) products = fma(load(q + i), load(k + i), products);
    const V qk = set(sum(products));

    V d[kSliceVectors];
    for (int j = 0; j < kSliceVectors; ++j) {
      const V v = load(task.v + t * task.v_stride + begin + j * kWidth);
      d[j] = mul(beta, sub(v, mul(alpha, read_k[j])));
      // The query sees the updated state: alpha S + k d^T.
      store(task.o + t * task.o_stride + begin + j * kWidth, fma(qk, d[j], mul(alpha, read_q[j])));
    }
    for (int i = 0; i < kDeltaDim; ++i) {
      const V ki = set(k[i]);
      for (int j = 0; j < kSliceVectors; ++j) {
        float* s = slice + i * Stride + j * kWidth;
        store(s, fma(ki, d[j], mul(alpha, load(s))));
      }
    }
  }
}

void delta_recurrence(const DeltaTask& task) {
  // In place the slice's rows lie 512 bytes apart and use a part of the first-level cache's sets only, so for
  // many tokens the slice is copied together: 32 KiB at most.
  alignas(64) float together[kDeltaDim * kSlice];
  const bool in_place = task.tokens == 1;
  for (int begin = 0; begin < kDeltaDim; begin += kSlice) {
    float* slice = task.state + begin;
    if (task.fresh || !in_place) {
      float* to = in_place ? slice : together;
      const int stride = in_place ? kDeltaDim : kSlice;
      for (int i = 0; i < kDeltaDim; ++i) {
        for (int j = 0; j < kSlice; j += kWidth) {
          store(to + i * stride + j, task.fresh ? zero() : load(slice + i * kDeltaDim + j));
        }
      }
    }
    if (in_place) {
      run_slice<kDeltaDim>(task, slice, begin);
      continue;
    }
    run_slice<kSlice>(task, together, begin);
    for (int i = 0; i < kDeltaDim; ++i) {
      for (int j = 0; j < kSlice; j += kWidth)
        store(slice + i * kDeltaDim + j, load(together + i * kSlice + j));
    }
  }
}

void gated_norm(const bf16* o, const bf16* z, const float* weight, float eps, bf16* y) {
  const float inverse = inverse_rms<kDeltaDim>(o, eps);
  for (int i = 0; i < kDeltaDim; i += kWidth) {
    const V normed = round_bf16(mul(load(o + i), set(inverse)));
    const V weighted = round_bf16(mul(load(weight + i), normed));
    store(y + i, mul(weighted, silu(load(z + i))));
  }
}

}  // namespace
}  // namespace tandem::ops::cpu
