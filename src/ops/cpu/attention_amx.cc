// Prefill attention on AMX tiles.
//
// Scores are made transposed, K Q^T, so that K is used where it lies and a vector holds one key's scores of
// 16 queries: softmax then needs no sums across a vector. The weights are rounded to bf16 for the product
// with V, as Hugging Face's SDPA does; their sum is of the unrounded ones. Pages are taken in ascending order
// with a running maximum, each query for itself, so nothing depends on which queries share a task.
//
// Letters: Q queries (tokens * group, padded to 16), a "block" is 16 queries, keys or dims.

#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr int kDim = 256;
constexpr int kPage = 64;
constexpr int kBlock = 16;
constexpr int kDimBlocks = kDim / kBlock;
constexpr int kKeyBlocks = kPage / kBlock;
constexpr int kDepth = 32;  // inputs of one tile product
constexpr int kTileWords = 256;
constexpr float kScoreScale = 0.0625f;
constexpr float kMinusInfinity = -__builtin_inff();

struct Scratch {
  int blocks;        // of queries
  std::uint32_t* q;  // [blocks, 8, 16 pairs, 16 queries]: Q^T as right-hand tiles
  float* o;          // [blocks, 16, 16 queries, 16 dims]: sums of weight * v
  float* scores;     // [64 keys, 16 * blocks]
  std::uint32_t* p;  // [16 * blocks queries, 32 key pairs] bf16 weights
  std::uint32_t* v;  // [2, 16, 16 key pairs, 16 dims]: V as right-hand tiles
  float* largest;    // [16 * blocks] each
  float* total;
  float* correction;
};

Scratch split(const AttendTask& task) {
  Scratch s;
  s.blocks = (task.tokens * task.group + kBlock - 1) / kBlock;
  const int queries = s.blocks * kBlock;
  s.q = reinterpret_cast<std::uint32_t*>(task.scratch);
  s.o = task.scratch + queries * (kDim / 2);
  s.scores = s.o + queries * kDim;
  s.p = reinterpret_cast<std::uint32_t*>(s.scores + kPage * queries);
  s.v = s.p + queries * (kPage / 2);
  s.largest = reinterpret_cast<float*>(s.v + kPage / 2 * kDim);
  s.total = s.largest + queries;
  s.correction = s.total + queries;
  for (int i = 0; i < queries * kDim; i += kWidth) store(s.o + i, zero());
  for (int i = 0; i < queries; ++i) {
    s.largest[i] = kMinusInfinity;
    s.total[i] = 0.0f;
  }
  return s;
}

void transpose_queries(const AttendTask& task, const Scratch& s) {
  const int queries = task.tokens * task.group;
  for (int i = 0; i < s.blocks * kBlock; ++i) {
    const bf16* q = task.q + i / task.group * task.q_stride + i % task.group * kDim;
    std::uint32_t* to = s.q + i / kBlock * (kDim / 2) * kBlock + i % kBlock;
    for (int pair = 0; pair < kDim / 2; ++pair) {
      std::uint32_t both = 0;
      if (i < queries) __builtin_memcpy(&both, q + 2 * pair, sizeof both);
      to[pair * kBlock] = both;
    }
  }
}

// Rows beyond `keys` may hold anything and become zero.
void interleave_values(const bf16* v, int keys, std::uint32_t* tiles) {
  const I upper = set_int(static_cast<std::int32_t>(0xffff0000));
  for (int pair = 0; pair < kPage / 2; ++pair) {
    const bf16* first = v + 2 * pair * kDim;
    for (int block = 0; block < kDimBlocks; ++block) {
      const auto words_of = [&](int key) {
        if (key >= keys) return set_int(0);
        const bf16* at = first + (key - 2 * pair) * kDim + block * kBlock;
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
      };
      const I both =
          _mm512_or_si512(and_int(shift_left<16>(words_of(2 * pair + 1)), upper), words_of(2 * pair));
      _mm512_store_si512(tiles + (pair / kBlock * kDimBlocks + block) * kTileWords + pair % kBlock * kBlock,
                         both);
    }
  }
}

// scores[key, query] = k . q for the whole page.
void score_page(const bf16* k, const Scratch& s) {
  const std::int64_t row_bytes = std::int64_t{s.blocks} * kBlock * 4;
  for (int block = 0; block < s.blocks; block += 2) {
    const bool two = block + 1 < s.blocks;
    const std::uint32_t* q0 = s.q + block * (kDim / 2) * kBlock;
    const std::uint32_t* q1 = q0 + (kDim / 2) * kBlock;
    for (int key = 0; key < kPage; key += 2 * kBlock) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int d = 0; d < kDim / kDepth; ++d) {
        _tile_loadd(4, k + key * kDim + d * kDepth, kDim * 2);
        _tile_loadd(6, q0 + d * kTileWords, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, k + (key + kBlock) * kDim + d * kDepth, kDim * 2);
        _tile_dpbf16ps(2, 5, 6);
        if (two) {
          _tile_loadd(7, q1 + d * kTileWords, 64);
          _tile_dpbf16ps(1, 4, 7);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
      float* to = s.scores + key * s.blocks * kBlock + block * kBlock;
      _tile_stored(0, to, row_bytes);
      _tile_stored(2, to + kBlock * s.blocks * kBlock, row_bytes);
      if (two) {
        _tile_stored(1, to + kBlock, row_bytes);
        _tile_stored(3, to + kBlock * s.blocks * kBlock + kBlock, row_bytes);
      }
    }
  }
}

// Scores of one block of queries become bf16 weights in s.p. `seen`: how many of the page's keys each query
// sees; `all_seen`: every one sees the whole page. Returns whether any sum must shrink.
bool weigh_block(const Scratch& s, int block, const I seen, bool all_seen) {
  const int row = s.blocks * kBlock;
  float* scores = s.scores + block * kBlock;
  const V scale = set(kScoreScale);
  V most = set(kMinusInfinity);
  for (int key = 0; key < kPage; ++key) {
    V x = mul(load(scores + key * row), scale);
    if (!all_seen) {
      x = _mm512_mask_mov_ps(set(kMinusInfinity), _mm512_cmpgt_epi32_mask(seen, set_int(key)), x);
    }
    store(scores + key * row, x);
    most = max(most, x);
  }
  const V before = load(s.largest + block * kBlock);
  const V now = max(before, most);
  const V correction = exp_negative(sub(before, now));
  V sums = zero();
  for (int half = 0; half < 2; ++half) {
    __m512i pairs[16];
    for (int pair = 0; pair < 16; ++pair) {
      const int key = half * 32 + 2 * pair;
      const V first = exp_negative(sub(load(scores + key * row), now));
      const V second = exp_negative(sub(load(scores + (key + 1) * row), now));
      sums = add(sums, add(first, second));
      pairs[pair] =
          _mm512_or_si512(shift_right<16>(rounded_words(first)),
                          and_int(rounded_words(second), set_int(static_cast<std::int32_t>(0xffff0000))));
    }
    transpose_16x16(pairs);
    for (int query = 0; query < kBlock; ++query) {
      _mm512_store_si512(s.p + (block * kBlock + query) * (kPage / 2) + half * 16, pairs[query]);
    }
  }
  store(s.total + block * kBlock, fma(load(s.total + block * kBlock), correction, sums));
  store(s.largest + block * kBlock, now);
  store(s.correction + block * kBlock, correction);
  return _mm512_cmp_ps_mask(correction, set(1.0f), _CMP_NEQ_UQ) != 0;
}

void shrink_block(const Scratch& s, int block) {
  float* o = s.o + block * kDimBlocks * kTileWords;
  for (int query = 0; query < kBlock; ++query) {
    const V factor = set(s.correction[block * kBlock + query]);
    for (int d = 0; d < kDimBlocks; ++d) {
      float* at = o + d * kTileWords + query * kBlock;
      store(at, mul(load(at), factor));
    }
  }
}

void add_values_of(const Scratch& s) {
  for (int block = 0; block < s.blocks; block += 2) {
    const bool two = block + 1 < s.blocks;
    const std::uint32_t* p0 = s.p + block * kBlock * (kPage / 2);
    const std::uint32_t* p1 = p0 + kBlock * (kPage / 2);
    for (int d = 0; d < kDimBlocks; d += 2) {
      float* o0 = s.o + (block * kDimBlocks + d) * kTileWords;
      float* o1 = o0 + kDimBlocks * kTileWords;
      _tile_loadd(0, o0, 64);
      _tile_loadd(1, o0 + kTileWords, 64);
      if (two) {
        _tile_loadd(2, o1, 64);
        _tile_loadd(3, o1 + kTileWords, 64);
      }
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t* v = s.v + (half * kDimBlocks + d) * kTileWords;
        _tile_loadd(6, v, 64);
        _tile_loadd(7, v + kTileWords, 64);
        _tile_loadd(4, p0 + half * 16, kPage * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
          _tile_loadd(5, p1 + half * 16, kPage * 2);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
      _tile_stored(0, o0, 64);
      _tile_stored(1, o0 + kTileWords, 64);
      if (two) {
        _tile_stored(2, o1, 64);
        _tile_stored(3, o1 + kTileWords, 64);
      }
    }
  }
}

}  // namespace

void attend_prefill_amx(const AttendTask& task) {
  const Scratch s = split(task);
  const int queries = task.tokens * task.group;
  transpose_queries(task, s);
  configure_tiles({.rows = {16, 16, 16, 16, 16, 16, 16, 16}});

  const std::int32_t positions = task.first_position + task.tokens;
  for (std::int32_t begin = 0; begin < positions; begin += kPage) {
    const int keys = positions - begin < kPage ? positions - begin : kPage;
    const bf16* k = task.k + task.pages[begin / kPage].value * task.page_stride;
    interleave_values(k + task.v_offset, keys, s.v);
    score_page(k, s);
    for (int block = 0; block < s.blocks; ++block) {
      alignas(64) std::int32_t seen[kBlock];
      bool all_seen = true;
      for (int i = 0; i < kBlock; ++i) {
        const int query = block * kBlock + i;
        // A padding query sees one key, so that its sums stay finite.
        const int count = query < queries ? task.first_position + query / task.group + 1 - begin : 1;
        seen[i] = count;
        all_seen = all_seen && count >= kPage;
      }
      if (weigh_block(s, block, load_int(seen), all_seen)) shrink_block(s, block);
    }
    add_values_of(s);
  }
  _tile_release();

  for (int i = 0; i < queries; ++i) {
    const int t = i / task.group, h = i % task.group;
    const bf16* gate = task.gate + t * task.gate_stride + h * task.gate_head_stride;
    bf16* y = task.y + t * task.y_stride + h * kDim;
    const V inverse = set(1.0f / s.total[i]);
    for (int d = 0; d < kDimBlocks; ++d) {
      const V o = load(s.o + (i / kBlock * kDimBlocks + d) * kTileWords + i % kBlock * kBlock);
      store(y + d * kBlock, mul(round_bf16(mul(o, inverse)), round_bf16(sigmoid(load(gate + d * kBlock)))));
    }
  }
}

}  // namespace tandem::ops::cpu
