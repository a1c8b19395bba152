#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/reference/backend.h"
#include "ops/test_tools.h"

// The reference operators against the same formulas written another way, in double precision.

namespace tandem::ops {
namespace {

using testing::KvPool;
using testing::Random;
using testing::Request;
using testing::StatePool;
using testing::StepMaker;

constexpr StepLimits kLimits{.max_tokens = 512,
                             .max_rows = 16,
                             .max_context = 512,
                             .max_logit_rows = 16,
                             .slots = 4,
                             .pages = 32,
                             .vocab = 300};

std::unique_ptr<Backend> reserved_backend() {
  auto backend = make_reference_backend();
  EXPECT_TRUE(backend->reserve(kLimits));
  return backend;
}

Request request(int slot, int pages, int first_page = 0) {
  Request r{.slot = SlotId{slot}, .pages = {}, .length = 0};
  for (int i = 0; i < pages; ++i) r.pages.push_back(PageId{first_page + i});
  return r;
}

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

struct DeltaInputs {
  DeltaShape shape;
  int tokens;
  std::vector<float> q, k, beta, decay;
  std::vector<bf16> v;
};

DeltaInputs delta_inputs(Random& random, DeltaShape shape, int tokens) {
  DeltaInputs in{shape, tokens, {}, {}, {}, {}, {}};
  in.q = random.floats(tokens * shape.key_width(), 0.008f);
  in.k = random.floats(tokens * shape.key_width(), 0.088f);
  in.v = random.bf16s(tokens * shape.value_width());
  in.beta = random.floats(tokens * shape.value_heads);
  in.decay = random.floats(tokens * shape.value_heads);
  for (float& b : in.beta) b = 1 / (1 + std::exp(-b));
  for (float& g : in.decay) g = -std::exp(2 * g - 3);
  return in;
}

DeltaRuleArgs delta_args(const DeltaInputs& in, int begin, int tokens, DeltaState state, bf16* o) {
  const DeltaShape s = in.shape;
  return {.q = dense(in.q.data() + begin * s.key_width(), tokens, s.key_heads, kDeltaHeadDim),
          .k = dense(in.k.data() + begin * s.key_width(), tokens, s.key_heads, kDeltaHeadDim),
          .v = dense(in.v.data() + begin * s.value_width(), tokens, s.value_heads, kDeltaHeadDim),
          .beta = dense(in.beta.data() + begin * s.value_heads, tokens, s.value_heads),
          .decay = dense(in.decay.data() + begin * s.value_heads, tokens, s.value_heads),
          .shape = s,
          .state = state,
          .o = dense(o + begin * s.value_width(), tokens, s.value_heads, kDeltaHeadDim)};
}

// The chunked form of spec 3.5 in double precision: another formulation of the same rule.
std::vector<double> chunked_delta_rule(const DeltaInputs& in) {
  constexpr int D = kDeltaHeadDim;
  const int heads = in.shape.value_heads, group = heads / in.shape.key_heads;
  std::vector<double> out(in.v.size());
  for (int h = 0; h < heads; ++h) {
    std::vector<double> state(D * D);
    for (int begin = 0; begin < in.tokens; begin += 64) {
      const int n = std::min(64, in.tokens - begin);
      const auto k = [&](int i, int d) {
        return double{in.k[(begin + i) * in.shape.key_width() + h / group * D + d]};
      };
      const auto q = [&](int i, int d) {
        return double{in.q[(begin + i) * in.shape.key_width() + h / group * D + d]};
      };
      const auto v = [&](int i, int d) {
        return double{to_float(in.v[(begin + i) * in.shape.value_width() + h * D + d])};
      };
      const auto beta = [&](int i) { return double{in.beta[(begin + i) * heads + h]}; };
      std::vector<double> cumulated(n);
      for (int i = 0; i < n; ++i)
        cumulated[i] = in.decay[(begin + i) * heads + h] + (i ? cumulated[i - 1] : 0.0);
      std::vector<double> u(n * D);  // (I + A)^-1 (diag(beta) (V - diag(exp G) K S)), row by row
      for (int i = 0; i < n; ++i) {
        for (int d = 0; d < D; ++d) {
          double read = 0;
          for (int e = 0; e < D; ++e) read += k(i, e) * state[e * D + d];
          u[i * D + d] = beta(i) * (v(i, d) - std::exp(cumulated[i]) * read);
        }
        for (int j = 0; j < i; ++j) {
          double kk = 0;
          for (int e = 0; e < D; ++e) kk += k(i, e) * k(j, e);
          const double a = beta(i) * kk * std::exp(cumulated[i] - cumulated[j]);
          for (int d = 0; d < D; ++d) u[i * D + d] -= a * u[j * D + d];
        }
      }
      for (int i = 0; i < n; ++i) {
        for (int d = 0; d < D; ++d) {
          double o = 0;
          for (int e = 0; e < D; ++e) o += std::exp(cumulated[i]) * q(i, e) * state[e * D + d];
          out[(begin + i) * in.shape.value_width() + h * D + d] = o;
        }
        for (int j = 0; j <= i; ++j) {
          double qk = 0;
          for (int e = 0; e < D; ++e) qk += q(i, e) * k(j, e);
          for (int d = 0; d < D; ++d) {
            out[(begin + i) * in.shape.value_width() + h * D + d] +=
                qk * std::exp(cumulated[i] - cumulated[j]) * u[j * D + d];
          }
        }
      }
      for (double& s : state) s *= std::exp(cumulated[n - 1]);
      for (int i = 0; i < n; ++i) {
        for (int e = 0; e < D; ++e) {
          for (int d = 0; d < D; ++d)
            state[e * D + d] += std::exp(cumulated[n - 1] - cumulated[i]) * k(i, e) * u[i * D + d];
        }
      }
    }
  }
  return out;
}

TEST(ReferenceDeltaRule, EqualsTheChunkedForm) {
  Random random(5);
  const DeltaInputs in = delta_inputs(random, {.key_heads = 2, .value_heads = 4}, 150);
  StatePool pool(kLimits.slots, in.shape);
  Request r = request(2, 3);
  StepMaker maker;
  maker.add(r, RowKind::Prefill, in.tokens);
  auto backend = reserved_backend();
  ASSERT_TRUE(backend->begin_step(maker.view()));
  std::vector<bf16> o(in.v.size());
  ASSERT_TRUE(backend->delta_rule(delta_args(in, 0, in.tokens, pool.view(), o.data())));
  const std::vector<double> want = chunked_delta_rule(in);
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_LE(std::abs(to_float(o[i]) - want[i]), std::abs(want[i]) / 256 + largest * 1e-5) << i;
  }
}

TEST(ReferenceDeltaRule, ChunkedEqualsWholeBitForBit) {
  Random random(6);
  const DeltaInputs in = delta_inputs(random, {.key_heads = 1, .value_heads = 3}, 97);
  std::vector<bf16> whole(in.v.size()), chunked(in.v.size());
  StatePool pool(kLimits.slots, in.shape);
  auto backend = reserved_backend();
  Request a = request(0, 2), b = request(1, 2);
  {
    StepMaker maker;
    maker.add(a, RowKind::Prefill, in.tokens);
    ASSERT_TRUE(backend->begin_step(maker.view()));
    ASSERT_TRUE(backend->delta_rule(delta_args(in, 0, in.tokens, pool.view(), whole.data())));
  }
  for (int begin = 0; begin < in.tokens;) {
    const int tokens = std::min(random.between(1, 40), in.tokens - begin);
    StepMaker maker;
    maker.add(b, RowKind::Prefill, tokens);
    ASSERT_TRUE(backend->begin_step(maker.view()));
    ASSERT_TRUE(backend->delta_rule(delta_args(in, begin, tokens, pool.view(), chunked.data())));
    begin += tokens;
  }
  EXPECT_TRUE(testing::same_bits(whole, chunked));
  EXPECT_TRUE(testing::same_bits(pool.state_of(a.slot), pool.state_of(b.slot)));
}

TEST(ReferenceDeltaPrepare, ChunkedEqualsWholeBitForBitAndMatchesDoublePrecision) {
  Random random(7);
  const DeltaShape shape{.key_heads = 1, .value_heads = 2};
  const int tokens = 23, width = shape.projected_width(), channels = shape.channels();
  const auto projected = random.bf16s(tokens * width);
  const auto weight = random.floats(channels * kConvTaps, 0.5f);
  const auto a_log = random.floats(shape.value_heads), dt_bias = random.floats(shape.value_heads);
  const DeltaParams params{.conv_weight = weight.data(), .a_log = a_log.data(), .dt_bias = dt_bias.data()};
  struct Out {
    std::vector<float> q, k, beta, decay;
    std::vector<bf16> v;
  };
  StatePool pool(kLimits.slots, shape);
  auto backend = reserved_backend();
  const auto run = [&](Request r, const std::vector<int>& chunks) {
    Out out{std::vector<float>(tokens * 128), std::vector<float>(tokens * 128),
            std::vector<float>(tokens * 2), std::vector<float>(tokens * 2), std::vector<bf16>(tokens * 256)};
    int t = 0;
    for (const int n : chunks) {
      StepMaker maker;
      maker.add(r, RowKind::Prefill, n);
      EXPECT_TRUE(backend->begin_step(maker.view()));
      EXPECT_TRUE(backend->delta_prepare({.projected = dense(projected.data() + t * width, n, width),
                                          .shape = shape,
                                          .params = params,
                                          .state = pool.view(),
                                          .q = dense(out.q.data() + t * 128, n, 1, 128),
                                          .k = dense(out.k.data() + t * 128, n, 1, 128),
                                          .v = dense(out.v.data() + t * 256, n, 2, 128),
                                          .beta = dense(out.beta.data() + t * 2, n, 2),
                                          .decay = dense(out.decay.data() + t * 2, n, 2)}));
      t += n;
    }
    return out;
  };
  const Out whole = run(request(0, 1), {tokens});
  const Out chunked = run(request(1, 1), {1, 1, 1, 2, 1, 3, 4, 10});
  EXPECT_TRUE(testing::same_bits(whole.q, chunked.q));
  EXPECT_TRUE(testing::same_bits(whole.k, chunked.k));
  EXPECT_TRUE(testing::same_bits(whole.v, chunked.v));
  EXPECT_TRUE(testing::same_bits(pool.conv_of(SlotId{0}), pool.conv_of(SlotId{1})));
  const auto u = [&](int t, int ch) { return t < 0 ? 0.0 : double{to_float(projected[t * width + ch])}; };
  for (int t = 0; t < tokens; ++t) {
    std::vector<double> m(channels), bound(channels);
    for (int ch = 0; ch < channels; ++ch) {
      double c = 0;
      for (int j = 0; j < 4; ++j) c += double{weight[ch * 4 + j]} * u(t - 3 + j, ch);
      m[ch] = c / (1 + std::exp(-c));
      // Rounding c moves silu(c) by at most (1 + |c|) times as much, relatively; then it is rounded itself.
      bound[ch] = std::abs(m[ch]) * (2 + std::abs(c)) / 256;
      if (ch >= 256) {
        EXPECT_NEAR(to_float(whole.v[t * 256 + ch - 256]), m[ch], bound[ch] + 1e-6);
      }
    }
    double qq = 1e-6, kk = 1e-6;
    for (int i = 0; i < 128; ++i) qq += m[i] * m[i], kk += m[128 + i] * m[128 + i];
    for (int i = 0; i < 128; ++i) {
      EXPECT_NEAR(whole.q[t * 128 + i], m[i] / std::sqrt(qq * 128), 0.002);
      EXPECT_NEAR(whole.k[t * 128 + i], m[128 + i] / std::sqrt(kk), 0.01);
    }
    for (int h = 0; h < 2; ++h) {
      const double b = u(t, channels + 256 + h), a = u(t, channels + 258 + h);
      EXPECT_NEAR(whole.beta[t * 2 + h], 1 / (1 + std::exp(-b)), 0.002);
      EXPECT_NEAR(whole.decay[t * 2 + h], -std::exp(a_log[h]) * std::log1p(std::exp(a + dt_bias[h])), 1e-5);
    }
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
