#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/reference/test_parts.h"

// The reference operators against the same formulas written another way, in double precision.

namespace tandem::ops {
namespace {

using testing::kLimits;
using testing::KvPool;
using testing::Random;
using testing::request;
using testing::Request;
using testing::reserved_backend;
using testing::StepMaker;

// One bf16 rounding of a double, and half a unit for the float32 work before it.
void expect_rounded(bf16 got, double want, double slack_ulps = 0.52) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(std::abs(want)), -20) - 7);
  EXPECT_LE(std::abs(to_float(got) - want), slack_ulps * unit) << to_float(got) << " for " << want;
}

TEST(ReferenceNorm, IsZeroCentredAndRoundsOnce) {
  Random random(1);
  const int tokens = 3, hidden = 77;
  const auto x = random.bf16s(tokens * hidden, 3.0f);
  const auto weight = random.floats(hidden, 0.3f);
  std::vector<bf16> y(x.size());
  ASSERT_TRUE(reserved_backend()->norm({.x = dense(x.data(), tokens, hidden),
                                        .weight = weight.data(),
                                        .y = dense(y.data(), tokens, hidden),
                                        .eps = 1e-6f}));
  for (int t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int i = 0; i < hidden; ++i) squares += std::pow(to_float(x[t * hidden + i]), 2.0);
    for (int i = 0; i < hidden; ++i) {
      expect_rounded(y[t * hidden + i],
                     to_float(x[t * hidden + i]) / std::sqrt(squares / hidden + 1e-6) * (1.0 + weight[i]));
    }
  }
}

TEST(ReferenceLinear, StacksItsPartsAndAddsInFloat32) {
  Random random(2);
  const int tokens = 5, inputs = 133, rows_a = 7, rows_b = 4;
  const auto x = random.bf16s(tokens * inputs);
  const auto a = random.bf16s(rows_a * inputs);
  const auto b = random.bf16s(rows_b * (inputs + 10));
  auto backend = reserved_backend();
  const HostMatrix parts[] = {testing::matrix(a, rows_a, inputs),
                              {b.data() + 10, rows_b, inputs, inputs + 10}};
  const LinearWeight weight = backend->load_linear(parts, "test").value();
  ASSERT_EQ(weight.rows, rows_a + rows_b);
  std::vector<bf16> y(tokens * weight.rows);
  ASSERT_TRUE(backend->linear(
      {.x = dense(x.data(), tokens, inputs), .weight = weight, .y = dense(y.data(), tokens, weight.rows)}));
  const std::vector<bf16> back = backend->read_back(weight).value();
  for (int t = 0; t < tokens; ++t) {
    for (int n = 0; n < weight.rows; ++n) {
      double sum = 0, magnitude = 0;
      for (int k = 0; k < inputs; ++k) {
        const bf16 w = n < rows_a ? a[n * inputs + k] : b[(n - rows_a) * (inputs + 10) + 10 + k];
        EXPECT_EQ(back[n * inputs + k], w);
        sum += double{to_float(x[t * inputs + k])} * to_float(w);
        magnitude += std::abs(double{to_float(x[t * inputs + k])} * to_float(w));
      }
      const double unit = std::ldexp(1.0, std::max(std::ilogb(std::abs(sum)), -20) - 7);
      EXPECT_LE(std::abs(to_float(y[t * weight.rows + n]) - sum), 0.5 * unit + magnitude * 1e-6);
    }
  }
}

TEST(ReferenceAttention, IsCausalSoftmaxOverThePages) {
  Random random(3);
  const int heads = 6, kv_heads = 2, length = 150;
  KvPool pool(kLimits.pages, kv_heads);
  Request r = request(1, 3);
  std::reverse(r.pages.begin(), r.pages.end());
  for (int p = 0; p < length; ++p) {
    for (int part = 0; part < 2; ++part) {
      for (int h = 0; h < kv_heads; ++h) {
        const auto values = random.bf16s(kHeadDim);
        std::copy(values.begin(), values.end(), pool.at(r.pages[p / kPageTokens], part, h, p % kPageTokens));
      }
    }
  }
  const int tokens = 10;
  r.length = length - tokens;
  StepMaker maker;
  maker.add(r, RowKind::Prefill, tokens);
  auto backend = reserved_backend();
  ASSERT_TRUE(backend->begin_step(maker.view()));
  const auto q = random.bf16s(tokens * heads * kHeadDim);
  const auto gate = random.bf16s(tokens * heads * kHeadDim);
  std::vector<bf16> y(q.size());
  ASSERT_TRUE(backend->attention({.q = dense(q.data(), tokens, heads, kHeadDim),
                                  .gate = dense(gate.data(), tokens, heads, kHeadDim),
                                  .kv = pool.view(),
                                  .y = dense(y.data(), tokens, heads, kHeadDim)}));
  for (int t = 0; t < tokens; ++t) {
    for (int j = 0; j < heads; ++j) {
      const int last = length - tokens + t;
      std::vector<double> weights(last + 1), o(kHeadDim);
      double total = 0;
      const std::int64_t at = (t * heads + j) * kHeadDim;
      for (int p = 0; p <= last; ++p) {
        const bf16* k = pool.at(r.pages[p / kPageTokens], 0, j / 3, p % kPageTokens);
        double score = 0;
        for (int d = 0; d < kHeadDim; ++d) score += double{to_float(q[at + d])} * to_float(k[d]);
        total += weights[p] = std::exp(score / 16);
      }
      for (int p = 0; p <= last; ++p) {
        const bf16* v = pool.at(r.pages[p / kPageTokens], 1, j / 3, p % kPageTokens);
        for (int d = 0; d < kHeadDim; ++d) o[d] += weights[p] / total * to_float(v[d]);
      }
      for (int d = 0; d < kHeadDim; ++d) {
        const double sigmoid = 1 / (1 + std::exp(-double{to_float(gate[at + d])}));
        // Three roundings: o, the gate and the product.
        expect_rounded(y[at + d], o[d] * sigmoid, 2.1);
      }
    }
  }
}

TEST(ReferenceAttentionPrepare, RotatesTheFirst64DimensionsInPairs32Apart) {
  Random random(4);
  const int heads = 2, kv_heads = 1, tokens = 70;
  Request r = request(0, 2, 5);
  StepMaker maker;
  maker.add(r, RowKind::Prefill, tokens);
  KvPool pool(kLimits.pages, kv_heads);
  auto backend = reserved_backend();
  ASSERT_TRUE(backend->begin_step(maker.view()));
  const int width = (2 * heads + 2 * kv_heads) * kHeadDim;
  const auto projected = random.bf16s(tokens * width);
  const auto q_norm = random.floats(kHeadDim, 0.2f), k_norm = random.floats(kHeadDim, 0.2f);
  std::vector<bf16> q(tokens * heads * kHeadDim);
  ASSERT_TRUE(backend->attention_prepare({.projected = dense(projected.data(), tokens, width),
                                          .q_norm = q_norm.data(),
                                          .k_norm = k_norm.data(),
                                          .q = dense(q.data(), tokens, heads, kHeadDim),
                                          .kv = pool.view(),
                                          .eps = 1e-6f,
                                          .rope_theta = 1e7f}));
  const auto check = [&](const bf16* in, const std::vector<float>& weight, int position, const bf16* out) {
    double squares = 0;
    for (int i = 0; i < kHeadDim; ++i) squares += std::pow(to_float(in[i]), 2.0);
    const auto normed = [&](int i) {
      return to_float(in[i]) / std::sqrt(squares / kHeadDim + 1e-6) * (1.0 + weight[i]);
    };
    for (int i = 0; i < kHeadDim; ++i) {
      double want = normed(i), scale = std::abs(want);
      if (i < 64) {
        const double angle = position * std::pow(1e7, -2.0 * (i % 32) / 64);
        const double other = i < 32 ? -normed(i + 32) : normed(i - 32);
        want = want * std::cos(angle) + other * std::sin(angle);
        scale = std::abs(normed(i)) + std::abs(other);
      }
      EXPECT_LE(std::abs(to_float(out[i]) - want), scale * 0.012 + 1e-6)
          << "position " << position << " dim " << i;
    }
  };
  for (int t = 0; t < tokens; ++t) {
    const bf16* in = projected.data() + t * width;
    for (int j = 0; j < heads; ++j) check(in + j * 512, q_norm, t, q.data() + (t * heads + j) * kHeadDim);
    check(in + 1024, k_norm, t, pool.at(r.pages[t / 64], 0, 0, t % 64));
    EXPECT_TRUE(std::equal(in + 1280, in + 1536, pool.at(r.pages[t / 64], 1, 0, t % 64)));
  }
}

TEST(ReferenceGatedNorm, NormsBeforeTheGate) {
  Random random(8);
  const auto o = random.bf16s(256), z = random.bf16s(256);
  const auto weight = random.floats(128, 0.2f, 1.0f);
  std::vector<bf16> y(256);
  ASSERT_TRUE(reserved_backend()->gated_norm({.o = dense(o.data(), 1, 2, 128),
                                              .z = dense(z.data(), 1, 2, 128),
                                              .weight = weight.data(),
                                              .y = dense(y.data(), 1, 2, 128),
                                              .eps = 1e-6f}));
  for (int h = 0; h < 2; ++h) {
    double squares = 0;
    for (int i = 0; i < 128; ++i) squares += std::pow(to_float(o[h * 128 + i]), 2.0);
    for (int i = 0; i < 128; ++i) {
      const double gate = to_float(z[h * 128 + i]);
      expect_rounded(y[h * 128 + i],
                     to_float(o[h * 128 + i]) / std::sqrt(squares / 128 + 1e-6) * weight[i] * gate /
                         (1 + std::exp(-gate)),
                     2.1);
    }
  }
}

TEST(ReferenceLinearSwiglu, RoundsGateUpAndTheirProduct) {
  Random random(9);
  const int inputs = 64, channels = 33;
  const auto x = random.bf16s(inputs), gate = random.bf16s(channels * inputs, 0.2f),
             up = random.bf16s(channels * inputs, 0.2f);
  auto backend = reserved_backend();
  const LinearWeight weight = backend
                                  ->load_gate_up(testing::matrix(gate, channels, inputs),
                                                 testing::matrix(up, channels, inputs), "gate up")
                                  .value();
  std::vector<bf16> scratch(2 * channels), y(channels);
  ASSERT_TRUE(backend->linear_swiglu({.x = dense(x.data(), 1, inputs),
                                      .weight = weight,
                                      .gate_up = dense(scratch.data(), 1, 2 * channels),
                                      .y = dense(y.data(), 1, channels)}));
  for (int i = 0; i < channels; ++i) {
    double g = 0, u = 0;
    for (int k = 0; k < inputs; ++k) {
      g += double{to_float(x[k])} * to_float(gate[i * inputs + k]);
      u += double{to_float(x[k])} * to_float(up[i * inputs + k]);
    }
    const double want = g / (1 + std::exp(-g)) * u;
    EXPECT_NEAR(to_float(y[i]), want, 0.02 * std::abs(want) + 1e-3);
  }
}

}  // namespace
}  // namespace tandem::ops
