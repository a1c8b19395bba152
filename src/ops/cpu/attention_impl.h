// Attention over pages. Included by the kernel file of one instruction set.
//
// Pages are taken in ascending order with a running maximum, each query for itself: the result of a query
// does not depend on which others share its task.

#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/norm_impl.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr int kPage = 64;
constexpr int kDim = kAttentionDim;
constexpr float kScoreScale = 0.0625f;  // 256^(-1/2), exact
constexpr float kMinusInfinity = -__builtin_inff();

// scores[64] becomes exp(scores - new maximum); `largest` and `total` move on. Returns the factor by which
// what was summed before must shrink.
TANDEM_INLINE float take_page_scores(float* scores, float& largest_score, float& total) {
  V page_largest = load(scores);
  for (int i = kWidth; i < kPage; i += kWidth) page_largest = max(page_largest, load(scores + i));
  const float before = largest_score;
  const float here = largest(page_largest);
  if (here > before) largest_score = here;
  V weights = zero();
  for (int i = 0; i < kPage; i += kWidth) {
    const V weight = exp_negative(sub(load(scores + i), set(largest_score)));
    store(scores + i, weight);
    weights = add(weights, weight);
  }
  const float correction = __builtin_expf(before - largest_score);
  total = total * correction + sum(weights);
  return correction;
}

TANDEM_INLINE void finish_query(const float* o, float total, const bf16* gate, bf16* y) {
  const V inverse = set(1.0f / total);
  for (int d = 0; d < kDim; d += kWidth) {
    store(y + d, mul(round_bf16(mul(load(o + d), inverse)), round_bf16(sigmoid(load(gate + d)))));
  }
}

TANDEM_INLINE void scale_query(const bf16* q, float* scaled) {
  for (int d = 0; d < kDim; d += kWidth) store(scaled + d, mul(load(q + d), set(kScoreScale)));
}

// Heads of one token, up to `Heads` at a time, over K and V where they lie.
template <int Heads>
TANDEM_INLINE void score_heads(const float* q, const bf16* k, int keys, float* scores) {
  for (int key = 0; key < keys; ++key, k += kDim) {
    V sums[Heads];
    for (int h = 0; h < Heads; ++h) sums[h] = zero();
    for (int d = 0; d < kDim; d += kWidth) {
      const V kd = load(k + d);
      for (int h = 0; h < Heads; ++h) sums[h] = fma(load(q + h * kDim + d), kd, sums[h]);
    }
    for (int h = 0; h < Heads; ++h) scores[h * kPage + key] = sum(sums[h]);
  }
}

template <int Heads>
TANDEM_INLINE void add_values(const float* weights, const float* corrections, const bf16* v, int keys,
                              float* o) {
  constexpr int kVectors = 2;
  for (int d = 0; d < kDim; d += kVectors * kWidth) {
    V sums[Heads][kVectors];
    for (int h = 0; h < Heads; ++h) {
      for (int i = 0; i < kVectors; ++i)
        sums[h][i] = mul(load(o + h * kDim + d + i * kWidth), set(corrections[h]));
    }
    for (int key = 0; key < keys; ++key) {
      V values[kVectors];
      for (int i = 0; i < kVectors; ++i) values[i] = load(v + key * kDim + d + i * kWidth);
      for (int h = 0; h < Heads; ++h) {
        const V weight = set(weights[h * kPage + key]);
        for (int i = 0; i < kVectors; ++i) sums[h][i] = fma(weight, values[i], sums[h][i]);
      }
    }
    for (int h = 0; h < Heads; ++h) {
      for (int i = 0; i < kVectors; ++i) store(o + h * kDim + d + i * kWidth, sums[h][i]);
    }
  }
}

struct AttendScratch {
  float *q, *o, *scores, *largest, *total, *correction, *page_k, *page_v;
};

TANDEM_INLINE AttendScratch split_scratch(const AttendTask& task, int padded) {
  AttendScratch s;
  s.q = task.scratch;
  s.o = s.q + padded * kDim;
  s.scores = s.o + padded * kDim;
  s.largest = s.scores + padded * kPage;
  s.total = s.largest + padded;
  s.correction = s.total + padded;
  s.page_k = s.correction + padded;
  s.page_v = s.page_k + kPage * kDim;
  for (int i = 0; i < padded * kDim; ++i) s.o[i] = 0.0f;
  for (int i = 0; i < padded; ++i) {
    s.largest[i] = kMinusInfinity;
    s.total[i] = 0.0f;
    s.correction[i] = 0.0f;
  }
  return s;
}

void attend_decode(const AttendTask& task) {
  const int heads = task.group;
  const AttendScratch s = split_scratch(task, (heads + 3) / 4 * 4);
  for (int h = 0; h < heads; ++h) scale_query(task.q + h * kDim, s.q + h * kDim);

  const std::int32_t positions = task.first_position + 1;
  for (std::int32_t begin = 0; begin < positions; begin += kPage) {
    const int keys = positions - begin < kPage ? positions - begin : kPage;
    const bf16* k = task.k + task.pages[begin / kPage].value * task.page_stride;
    int h = 0;
    for (; h + 4 <= heads; h += 4) score_heads<4>(s.q + h * kDim, k, keys, s.scores + h * kPage);
    for (; h + 2 <= heads; h += 2) score_heads<2>(s.q + h * kDim, k, keys, s.scores + h * kPage);
    for (; h < heads; ++h) score_heads<1>(s.q + h * kDim, k, keys, s.scores + h * kPage);
    for (h = 0; h < heads; ++h) {
      for (int key = keys; key < kPage; ++key) s.scores[h * kPage + key] = kMinusInfinity;
      s.correction[h] = take_page_scores(s.scores + h * kPage, s.largest[h], s.total[h]);
    }
    const bf16* v = k + task.v_offset;
    for (h = 0; h + 4 <= heads; h += 4)
      add_values<4>(s.scores + h * kPage, s.correction + h, v, keys, s.o + h * kDim);
    for (; h + 2 <= heads; h += 2)
      add_values<2>(s.scores + h * kPage, s.correction + h, v, keys, s.o + h * kDim);
    for (; h < heads; ++h) add_values<1>(s.scores + h * kPage, s.correction + h, v, keys, s.o + h * kDim);
  }
  for (int h = 0; h < heads; ++h) {
    finish_query(s.o + h * kDim, s.total[h], task.gate + h * task.gate_head_stride, task.y + h * kDim);
  }
}

// K of a page as [256, 64] floats, so that one vector holds many positions. Beyond `keys`: zero.
TANDEM_INLINE void transpose_keys(const bf16* k, int keys, float* out) {
  alignas(64) bf16 copy[kPage * kDim];
  if (keys < kPage) {  // the rest of the page may hold anything
    for (int i = 0; i < keys * kDim; ++i) copy[i] = k[i];
    for (int i = keys * kDim; i < kPage * kDim; ++i) copy[i] = bf16{};
    k = copy;
  }
  const I upper = set_int(static_cast<std::int32_t>(0xffff0000));
  for (int key = 0; key < kPage; key += kWidth) {
    const auto* words_at = reinterpret_cast<const std::uint32_t*>(k + key * kDim);
    for (int pair = 0; pair < kDim / 2; ++pair) {
      const I both = gather(words_at + pair, kDim / 2);
      store(out + (2 * pair) * kPage + key, floats(shift_left<16>(both)));
      store(out + (2 * pair + 1) * kPage + key, floats(and_int(both, upper)));
    }
  }
}

constexpr int kQueries = 4;                         // at a time
constexpr int kTileVectors = kWidth == 16 ? 4 : 2;  // so that the sums fit the registers

void attend_prefill(const AttendTask& task) {
  const int queries = task.tokens * task.group;  // query i is head i % group of token i / group
  const int padded = (queries + kQueries - 1) / kQueries * kQueries;
  const AttendScratch s = split_scratch(task, padded);
  for (int i = 0; i < queries; ++i) {
    scale_query(task.q + i / task.group * task.q_stride + i % task.group * kDim, s.q + i * kDim);
  }
  for (int i = queries * kDim; i < padded * kDim; ++i) s.q[i] = 0.0f;

  const std::int32_t positions = task.first_position + task.tokens;
  for (std::int32_t begin = 0; begin < positions; begin += kPage) {
    const int keys = positions - begin < kPage ? positions - begin : kPage;
    const bf16* k = task.k + task.pages[begin / kPage].value * task.page_stride;
    transpose_keys(k, keys, s.page_k);
    to_floats_of(k + task.v_offset, keys * kDim, s.page_v);

    for (int i = 0; i < padded; i += kQueries) {
      for (int key = 0; key < kPage; key += kTileVectors * kWidth) {
        V sums[kQueries][kTileVectors];
        for (int a = 0; a < kQueries; ++a) {
          for (int b = 0; b < kTileVectors; ++b) sums[a][b] = zero();
        }
        for (int d = 0; d < kDim; ++d) {
          V ks[kTileVectors];
          for (int b = 0; b < kTileVectors; ++b) ks[b] = load(s.page_k + d * kPage + key + b * kWidth);
          for (int a = 0; a < kQueries; ++a) {
            const V qd = set(s.q[(i + a) * kDim + d]);
            for (int b = 0; b < kTileVectors; ++b) sums[a][b] = fma(qd, ks[b], sums[a][b]);
          }
        }
        for (int a = 0; a < kQueries; ++a) {
          for (int b = 0; b < kTileVectors; ++b)
            store(s.scores + (i + a) * kPage + key + b * kWidth, sums[a][b]);
        }
      }
      int most = 0;
      for (int a = 0; a < kQueries; ++a) {
        float* scores = s.scores + (i + a) * kPage;
        int seen = i + a < queries ? task.first_position + (i + a) / task.group + 1 - begin : 0;
        seen = seen < 0 ? 0 : (seen > kPage ? kPage : seen);
        if (seen == 0) {  // a page wholly after this query
          for (int key = 0; key < kPage; ++key) scores[key] = 0.0f;
          s.correction[i + a] = 1.0f;
          continue;
        }
        for (int key = seen; key < kPage; ++key) scores[key] = kMinusInfinity;
        s.correction[i + a] = take_page_scores(scores, s.largest[i + a], s.total[i + a]);
        most = seen > most ? seen : most;
      }
      for (int d = 0; d < kDim; d += kTileVectors * kWidth) {
        V sums[kQueries][kTileVectors];
        for (int a = 0; a < kQueries; ++a) {
          for (int b = 0; b < kTileVectors; ++b) {
            sums[a][b] = mul(load(s.o + (i + a) * kDim + d + b * kWidth), set(s.correction[i + a]));
          }
        }
        for (int key = 0; key < most; ++key) {
          V values[kTileVectors];
          for (int b = 0; b < kTileVectors; ++b) values[b] = load(s.page_v + key * kDim + d + b * kWidth);
          for (int a = 0; a < kQueries; ++a) {
            const V weight = set(s.scores[(i + a) * kPage + key]);
            for (int b = 0; b < kTileVectors; ++b) sums[a][b] = fma(weight, values[b], sums[a][b]);
          }
        }
        for (int a = 0; a < kQueries; ++a) {
          for (int b = 0; b < kTileVectors; ++b) store(s.o + (i + a) * kDim + d + b * kWidth, sums[a][b]);
        }
      }
    }
  }
  for (int i = 0; i < queries; ++i) {
    const int t = i / task.group, h = i % task.group;
    finish_query(s.o + i * kDim, s.total[i], task.gate + t * task.gate_stride + h * task.gate_head_stride,
                 task.y + t * task.y_stride + h * kDim);
  }
}

}  // namespace
}  // namespace tandem::ops::cpu
