#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/reference/test_parts.h"

// The reference's delta rule and its preparation against the chunked form, chunks against the whole, and double precision.

namespace tandem::ops {
namespace {

using testing::kLimits;
using testing::Random;
using testing::request;
using testing::Request;
using testing::reserved_backend;
using testing::StatePool;
using testing::StepMaker;

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

}  // namespace
}  // namespace tandem::ops
