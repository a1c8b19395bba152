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

// The state is taken in slices of value dims that stay in the first-level cache for the whole row.
constexpr int kSliceVectors = 4;
constexpr int kSlice = kSliceVectors * kWidth;

void delta_recurrence(const DeltaTask& task) {
  for (int begin = 0; begin < kDeltaDim; begin += kSlice) {
    float* slice = task.state + begin;
    if (task.fresh) {
      for (int i = 0; i < kDeltaDim; ++i) {
        for (int j = 0; j < kSliceVectors; ++j) store(slice + i * kDeltaDim + j * kWidth, zero());
      }
    }
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
          const V s = load(slice + i * kDeltaDim + j * kWidth);
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
          float* s = slice + i * kDeltaDim + j * kWidth;
          store(s, fma(ki, d[j], mul(alpha, load(s))));
        }
      }
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
