// The gated delta rule for prompts, in chunks of 64 tokens on AMX tiles (spec 3.5).
//
// With the state S at a chunk's start, G the running sum of decays and D_ij = e^(G_i - G_j), i >= j:
//
//   A_ij = beta_i (k_i . k_j) D_ij for i > j        R_i = beta_i (v_i - e^(G_i) k_i S)
//   (I + A) V' = R, solved row by row in float32
//   o_i = e^(G_i) q_i S + sum_{j <= i} (q_i . k_j) D_ij V'_j
//   S  <- e^(G_last) S + sum_j e^(G_last - G_j) k_j V'_j^T
//
// Tiles multiply bf16, so every operand is split into two of them, x = high + low, and a product is high *
// high + high * low + low * high with float32 sums: an error of 2^-16, a hundredth of o's own rounding.
//
// Chunks begin at multiples of 64 of the absolute position, so a prompt cut there gives the bits of the whole
// one.

#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr int C = 64;   // tokens of a chunk
constexpr int D = 128;  // key and value dims
constexpr int kBlock = 16;
constexpr int kTileWords = 256;
constexpr int kFewTokens = 12;  // below, the recurrence is faster than a padded chunk

struct Halves {
  __m256i high, low;
};
TANDEM_INLINE Halves split(V x) {
  const auto high = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  const V rest = sub(x, floats(shift_left<16>(_mm512_cvtepu16_epi32(high))));
  return {high, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(rest))};
}
// Pairs for a right-hand tile: `first` in the lower half of each word.
TANDEM_INLINE I pair_words(__m256i first, __m256i second) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(first), shift_left<16>(_mm512_cvtepu16_epi32(second)));
}

// A matrix in two parts. Left-hand: rows of bf16. Right-hand: tiles [depth / 32, columns / 16, 16 pairs, 16].
template <int Elements>
struct Parts {
  alignas(64) bf16 high[Elements];
  alignas(64) bf16 low[Elements];
};

struct Scratch {
  Parts<2 * C * D> kq;                // rows 0..63 k, 64..127 q [128, D]: left-hand
  Parts<C * D> k_columns;             // K^T [D, C]: right-hand
  Parts<D * D> state;                 // S [D, D]: right-hand
  Parts<C * D> values;                // V' [C, D]: right-hand
  Parts<D * C> k_decayed;             // (e^(G_last - G) K)^T [D, C]: left-hand
  Parts<C * C> weights;               // (q_i . k_j) D_ij [C, C]: left-hand
  alignas(64) float gram[2 * C * C];  // k_i . k_j, then q_i . k_j
  alignas(64) float read[2 * C * D];  // k_i S, then q_i S
  alignas(64) float rows[C * D];      // R, then V'
  alignas(64) float a[C * C];
  alignas(64) float decay[C];  // G
  alignas(64) float grown[C];  // e^G
  alignas(64) float left[C];   // e^(G_last - G)
};
static_assert(sizeof(Scratch) <= kDeltaScratch * sizeof(float));

TANDEM_INLINE void store_row(bf16* high, bf16* low, V x) {
  const Halves halves = split(x);
  _mm256_store_si256(reinterpret_cast<__m256i*>(high), halves.high);
  _mm256_store_si256(reinterpret_cast<__m256i*>(low), halves.low);
}

// Two rows of float next to each other in depth become one row of 16 pairs.
TANDEM_INLINE void store_pairs(bf16* high, bf16* low, V first, V second) {
  const Halves a = split(first), b = split(second);
  _mm512_store_si512(high, pair_words(a.high, b.high));
  _mm512_store_si512(low, pair_words(a.low, b.low));
}

// c[32, 32] (+)= left[32 rows, depth] * right[depth, 32 columns]. `left` points at its first row and column;
// right_step: elements between tiles that follow each other in depth.
TANDEM_INLINE void multiply(float* c, int c_stride, bool add, const bf16* left_high, const bf16* left_low,
                            int left_stride, const bf16* right_high, const bf16* right_low, int right_step,
                            int depth) {
  constexpr int kTile = 2 * kTileWords;  // elements
  const int row_bytes = c_stride * 4;
  if (add) {
    _tile_loadd(0, c, row_bytes);
    _tile_loadd(1, c + kBlock, row_bytes);
    _tile_loadd(2, c + kBlock * c_stride, row_bytes);
    _tile_loadd(3, c + kBlock * c_stride + kBlock, row_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const auto products = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  };
  for (int d = 0; d < depth; d += 32, right_high += right_step, right_low += right_step) {
    _tile_loadd(4, left_high + d, left_stride * 2);
    _tile_loadd(5, left_high + kBlock * left_stride + d, left_stride * 2);
    _tile_loadd(6, right_low, 64);
    _tile_loadd(7, right_low + kTile, 64);
    products();
    _tile_loadd(6, right_high, 64);
    _tile_loadd(7, right_high + kTile, 64);
    products();
    _tile_loadd(4, left_low + d, left_stride * 2);
    _tile_loadd(5, left_low + kBlock * left_stride + d, left_stride * 2);
    products();
  }
  _tile_stored(0, c, row_bytes);
  _tile_stored(1, c + kBlock, row_bytes);
  _tile_stored(2, c + kBlock * c_stride, row_bytes);
  _tile_stored(3, c + kBlock * c_stride + kBlock, row_bytes);
}

// Everything that is made of k and q alone. Rows beyond `tokens` are zero.
void take_inputs(const DeltaTask& task, int first, int tokens, Scratch& s) {
  for (int i = 0; i < C; ++i) {
    const bool real = i < tokens;
    const float* k = task.k + (first + i) * task.qk_stride;
    const float* q = task.q + (first + i) * task.qk_stride;
    for (int d = 0; d < D; d += kWidth) {
      store_row(s.kq.high + i * D + d, s.kq.low + i * D + d, real ? load(k + d) : zero());
      store_row(s.kq.high + (C + i) * D + d, s.kq.low + (C + i) * D + d, real ? load(q + d) : zero());
    }
  }
  // K^T: words (two dims) of 16 tokens at a time.
  for (const bool is_low : {false, true}) {
    const bf16* rows = is_low ? s.kq.low : s.kq.high;
    bf16* tiles = is_low ? s.k_columns.low : s.k_columns.high;
    for (int token = 0; token < C; token += kBlock) {
      for (int d = 0; d < D; d += 2 * kBlock) {
        I words_of[kBlock];
        for (int i = 0; i < kBlock; ++i) words_of[i] = _mm512_load_si512(rows + (token + i) * D + d);
        transpose_16x16(words_of);
        bf16* tile = tiles + (d / 32 * (C / kBlock) + token / kBlock) * 2 * kTileWords;
        for (int i = 0; i < kBlock; ++i) _mm512_store_si512(tile + i * 32, words_of[i]);
      }
    }
  }
  // (e^(G_last - G) K)^T.
  for (int token = 0; token < C; token += kBlock) {
    const V factor = load(s.left + token);
    for (int d = 0; d < D; d += kBlock) {
      I columns[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        const float* k = task.k + (first + token + i) * task.qk_stride + d;
        columns[i] = words(token + i < tokens ? load(k) : zero());
      }
      transpose_16x16(columns);
      for (int i = 0; i < kBlock; ++i) {
        const int at = (d + i) * C + token;
        store_row(s.k_decayed.high + at, s.k_decayed.low + at, mul(floats(columns[i]), factor));
      }
    }
  }
}

void take_decays(const DeltaTask& task, int first, int tokens, Scratch& s) {
  float sum = 0.0f;
  for (int i = 0; i < C; ++i) {
    if (i < tokens) sum += task.decay[(first + i) * task.head_stride];
    s.decay[i] = sum;
  }
  for (int i = 0; i < C; i += kWidth) {
    store(s.grown + i, exp_negative(load(s.decay + i)));
    store(s.left + i, exp_negative(sub(set(sum), load(s.decay + i))));
  }
}

void take_state(const float* state, Scratch& s) {
  for (int pair = 0; pair < D / 2; ++pair) {
    for (int column = 0; column < D; column += kBlock) {
      const int at = ((pair / kBlock * (D / kBlock) + column / kBlock) * kBlock + pair % kBlock) * 32;
      const float* from = state + 2 * pair * D + column;
      store_pairs(s.state.high + at, s.state.low + at, load(from), load(from + D));
    }
  }
}

// gram and read, by tiles.
void multiply_inputs(Scratch& s) {
  for (int row = 0; row < 2 * C; row += 32) {
    for (int column = 0; column <= row % C; column += 32) {
      multiply(s.gram + row * C + column, C, false, s.kq.high + row * D, s.kq.low + row * D, D,
               s.k_columns.high + column * 32, s.k_columns.low + column * 32, C * 32, D);
    }
    for (int column = 0; column < D; column += 32) {
      multiply(s.read + row * D + column, D, false, s.kq.high + row * D, s.kq.low + row * D, D,
               s.state.high + column * 32, s.state.low + column * 32, D * 32, D);
    }
  }
}

// A, the weights of the outputs, and R.
void make_system(const DeltaTask& task, int first, int tokens, Scratch& s) {
  const I lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int i = 0; i < C; ++i) {
    const float beta_i = i < tokens ? task.beta[(first + i) * task.head_stride] : 0.0f;
    const V g = set(s.decay[i]);
    for (int j = 0; j < C; j += kWidth) {
      V weight = zero(), a = zero();
      if (j <= i) {
        // Beyond the diagonal the difference is positive and may overflow: masked before exp.
        const I column = add_int(lanes, set_int(j));
        const __mmask16 below = _mm512_cmplt_epi32_mask(column, set_int(i));
        const __mmask16 up_to = _mm512_cmple_epi32_mask(column, set_int(i));
        const V d = exp_negative(_mm512_maskz_sub_ps(up_to, g, load(s.decay + j)));
        a = _mm512_maskz_mul_ps(below, mul(set(beta_i), load(s.gram + i * C + j)), d);
        weight = _mm512_maskz_mul_ps(up_to, load(s.gram + (C + i) * C + j), d);
      }
      store(s.a + i * C + j, a);
      store_row(s.weights.high + i * C + j, s.weights.low + i * C + j, weight);
    }
    const V beta = set(beta_i), grown = set(s.grown[i]);
    for (int d = 0; d < D; d += kWidth) {
      const V v = i < tokens ? load(task.v + (first + i) * task.v_stride + d) : zero();
      store(s.rows + i * D + d, mul(beta, sub(v, mul(grown, load(s.read + i * D + d)))));
    }
  }
}

// rows_i -= sum_{j < i} a_ij rows_j, two rows at a time.
void solve(Scratch& s) {
  constexpr int kVectors = D / kWidth;
  for (int i = 0; i < C; i += 2) {
    V upper[kVectors], lower[kVectors];
    for (int d = 0; d < kVectors; ++d) {
      upper[d] = load(s.rows + i * D + d * kWidth);
      lower[d] = load(s.rows + (i + 1) * D + d * kWidth);
    }
    for (int j = 0; j < i; ++j) {
      const V a0 = set(-s.a[i * C + j]), a1 = set(-s.a[(i + 1) * C + j]);
      for (int d = 0; d < kVectors; ++d) {
        const V row = load(s.rows + j * D + d * kWidth);
        upper[d] = fma(a0, row, upper[d]);
        lower[d] = fma(a1, row, lower[d]);
      }
    }
    const V a = set(-s.a[(i + 1) * C + i]);
    for (int d = 0; d < kVectors; ++d) {
      lower[d] = fma(a, upper[d], lower[d]);
      store(s.rows + i * D + d * kWidth, upper[d]);
      store(s.rows + (i + 1) * D + d * kWidth, lower[d]);
      const int at = ((i / 32 * (D / kBlock) + d) * kBlock + i / 2 % kBlock) * 32;
      store_pairs(s.values.high + at, s.values.low + at, upper[d], lower[d]);
    }
  }
}

void make_outputs(const DeltaTask& task, int first, int tokens, Scratch& s) {
  float* o = s.read + C * D;
  for (int i = 0; i < C; ++i) {
    const V grown = set(s.grown[i]);
    for (int d = 0; d < D; d += kWidth) store(o + i * D + d, mul(grown, load(o + i * D + d)));
  }
  for (int row = 0; row < C; row += 32) {
    for (int column = 0; column < D; column += 32) {
      multiply(o + row * D + column, D, true, s.weights.high + row * C, s.weights.low + row * C, C,
               s.values.high + column * 32, s.values.low + column * 32, D * 32, row + 32);
    }
  }
  for (int i = 0; i < tokens; ++i) {
    for (int d = 0; d < D; d += kWidth) store(task.o + (first + i) * task.o_stride + d, load(o + i * D + d));
  }
}

void move_state(float* state, Scratch& s) {
  const V factor = set(s.grown[C - 1]);
  for (int i = 0; i < D * D; i += kWidth) store(state + i, mul(factor, load(state + i)));
  for (int row = 0; row < D; row += 32) {
    for (int column = 0; column < D; column += 32) {
      multiply(state + row * D + column, D, true, s.k_decayed.high + row * C, s.k_decayed.low + row * C, C,
               s.values.high + column * 32, s.values.low + column * 32, D * 32, C);
    }
  }
}

}  // namespace

void delta_chunks_amx(const DeltaTask& task) {
  auto& s = *reinterpret_cast<Scratch*>(task.scratch);
  if (task.fresh) {
    for (int i = 0; i < D * D; i += kWidth) store(task.state + i, zero());
  }
  configure_tiles({.rows = {16, 16, 16, 16, 16, 16, 16, 16}});
  for (int first = 0; first < task.tokens;) {
    const int to_edge = C - (task.first_position + first) % C;
    const int tokens = task.tokens - first < to_edge ? task.tokens - first : to_edge;
    if (tokens <= kFewTokens) {
      DeltaTask few = task;
      few.q += first * task.qk_stride;
      few.k += first * task.qk_stride;
      few.v += first * task.v_stride;
      few.beta += first * task.head_stride;
      few.decay += first * task.head_stride;
      few.o += first * task.o_stride;
      few.tokens = tokens;
      few.fresh = false;
      kKernelsAvx512Bf16.delta_recurrence(few);
    } else {
      take_decays(task, first, tokens, s);
      take_inputs(task, first, tokens, s);
      take_state(task.state, s);
      multiply_inputs(s);
      make_system(task, first, tokens, s);
      solve(s);
      make_outputs(task, first, tokens, s);
      move_state(task.state, s);
    }
    first += tokens;
  }
  _tile_release();
}

}  // namespace tandem::ops::cpu
