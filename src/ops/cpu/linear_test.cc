#include <gtest/gtest.h>

#include "ops/cpu/scene.h"

// Linear operators against the reference.

namespace tandem::ops {
namespace {

using namespace testing;

class CpuLinear : public OnEveryIsa {};

INSTANTIATE_TEST_SUITE_P(Isa, CpuLinear, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return name(set.param); });

struct LinearCase {
  int tokens, inputs, outputs;
};

TEST_P(CpuLinear, LinearIsWithinOneRoundingOfTheReference) {
  Random random(11);
  for (const LinearCase c : {LinearCase{1, 64, 32},
                             {1, 1000, 97},
                             {2, 33, 1},
                             {3, 128, 64},
                             {5, 257, 129},
                             {8, 96, 40},
                             {13, 64, 33},
                             {16, 512, 70},
                             {17, 31, 65},
                             {33, 160, 96},
                             {70, 320, 50},
                             {600, 64, 45},
                             {1, 320, 1400},
                             {4, 70, 2300},
                             {16, 128, 900}}) {
    SCOPED_TRACE(::testing::Message() << c.tokens << " tokens, " << c.inputs << " to " << c.outputs);
    auto a = fast(), b = plain();
    const auto w = random.bf16s(c.outputs * c.inputs);
    const auto x = random.bf16s(c.tokens * c.inputs);
    const int split = random.between(0, c.outputs);
    const HostMatrix parts[] = {{w.data(), split, c.inputs, c.inputs},
                                {w.data() + split * c.inputs, c.outputs - split, c.inputs, c.inputs}};
    std::vector<bf16> ya(c.tokens * c.outputs), yb(ya.size());
    const LinearWeight wa = a->load_linear(parts, "w").value();
    EXPECT_TRUE(same_bits(a->read_back(wa).value(), w));
    const auto view = dense(x.data(), c.tokens, c.inputs);
    ASSERT_TRUE(a->linear({.x = view, .weight = wa, .y = dense(ya.data(), c.tokens, c.outputs)}));
    ASSERT_TRUE(b->linear({.x = view,
                           .weight = b->load_linear(parts, "w").value(),
                           .y = dense(yb.data(), c.tokens, c.outputs)}));
    EXPECT_LE(distance(ya, yb, std::sqrt(static_cast<float>(c.inputs)) / 16), 1.0f);

    // Each token alone, and with another number of threads: the same bits.
    auto alone = fast(1);
    const LinearWeight wc = alone->load_linear(parts, "w").value();
    for (int t = 0; t < c.tokens; t += std::max(1, c.tokens / 7)) {
      std::vector<bf16> y(c.outputs);
      ASSERT_TRUE(alone->linear({.x = dense(x.data() + t * c.inputs, 1, c.inputs),
                                 .weight = wc,
                                 .y = dense(y.data(), 1, c.outputs)}));
      EXPECT_TRUE(std::equal(y.begin(), y.end(), ya.begin() + t * c.outputs)) << "token " << t;
    }
  }
}

TEST_P(CpuLinear, LinearReadsAndWritesStridedRowsOnly) {
  Random random(12);
  const int tokens = 21, inputs = 96, outputs = 50, x_stride = 130, y_stride = 77;
  auto backend = fast();
  auto x = random.bf16s(tokens * x_stride);
  const auto w = random.bf16s(outputs * inputs);
  const HostMatrix part = testing::matrix(w, outputs, inputs);
  const LinearWeight weight = backend->load_linear({&part, 1}, "w").value();
  std::vector<bf16> dense_x, dense_y(tokens * outputs), y(tokens * y_stride, bf16{0x1234});
  for (int t = 0; t < tokens; ++t) {
    dense_x.insert(dense_x.end(), x.begin() + t * x_stride, x.begin() + t * x_stride + inputs);
    std::fill(x.begin() + t * x_stride + inputs, x.begin() + (t + 1) * x_stride, bf16{0xffff});
  }
  ASSERT_TRUE(backend->linear({.x = dense(dense_x.data(), tokens, inputs),
                               .weight = weight,
                               .y = dense(dense_y.data(), tokens, outputs)}));
  ASSERT_TRUE(backend->linear({.x = View<const bf16, 2>{x.data(), {tokens, inputs}, {x_stride, 1}},
                               .weight = weight,
                               .y = View<bf16, 2>{y.data(), {tokens, outputs}, {y_stride, 1}}}));
  for (int t = 0; t < tokens; ++t) {
    EXPECT_TRUE(std::equal(dense_y.begin() + t * outputs, dense_y.begin() + (t + 1) * outputs,
                           y.begin() + t * y_stride));
    for (int n = outputs; n < y_stride; ++n) EXPECT_EQ(y[t * y_stride + n].bits, 0x1234);
  }
}

TEST_P(CpuLinear, LinearSwigluIsWithinItsRoundingsOfTheReference) {
  Random random(13);
  for (const LinearCase c : {LinearCase{1, 64, 16}, {1, 100, 33}, {9, 70, 40}, {40, 128, 20}}) {
    auto a = fast(), b = plain();
    const auto gate = random.bf16s(c.outputs * c.inputs, 0.2f), up = random.bf16s(c.outputs * c.inputs, 0.2f);
    const auto x = random.bf16s(c.tokens * c.inputs);
    std::vector<bf16> scratch(c.tokens * 2 * c.outputs), ya(c.tokens * c.outputs), yb(ya.size());
    const auto run = [&](Backend& backend, std::vector<bf16>& y) {
      const LinearWeight weight = backend
                                      .load_gate_up(testing::matrix(gate, c.outputs, c.inputs),
                                                    testing::matrix(up, c.outputs, c.inputs), "w")
                                      .value();
      std::vector<bf16> stacked = gate;
      stacked.insert(stacked.end(), up.begin(), up.end());
      EXPECT_TRUE(same_bits(backend.read_back(weight).value(), stacked));
      ASSERT_TRUE(backend.linear_swiglu({.x = dense(x.data(), c.tokens, c.inputs),
                                         .weight = weight,
                                         .gate_up = dense(scratch.data(), c.tokens, 2 * c.outputs),
                                         .y = dense(y.data(), c.tokens, c.outputs)}));
    };
    run(*a, ya);
    run(*b, yb);
    // Either factor may differ by one unit; silu passes at most 1.1 of it on, the floor covers its zero.
    EXPECT_LE(distance(ya, yb, 0.25f), 4.0f);
  }
}

}  // namespace
}  // namespace tandem::ops
