#include "ops/cuda/few_tokens.cuh"

#include "ops/cuda/cuda_test_tools.h"

namespace tandem::ops::cuda {
namespace {

using namespace testing;

constexpr double kRounding = 4e-3;  // one bf16 rounding apart at most, on average far less

struct Device {
  std::unique_ptr<CudaBackend> cuda = CudaBackend::open(0).value();
  std::unique_ptr<Backend> reference = make_reference_backend();
};

DeviceMatrix on_device(const Mirror<bf16>& weight, std::int64_t n, std::int64_t k) {
  DeviceMatrix matrix{.data = weight.device, .rows = n, .cols = k};
  matrix.tiles = weight_tiles(matrix).value();
  return matrix;
}

// Any plan that the kernel takes: odd numbers of outputs, of inputs, of steps a split.
TEST(FewTokens, EqualsTheReferenceForEveryPlanAndRepeatsItsBits) {
  Random random(31);
  Device device;
  constexpr int kOutputs = 328, kInputs = 1096, kSlack = 16;
  for (const GemmOp op : {GemmOp::Linear, GemmOp::Swiglu}) {
    const int rows = op == GemmOp::Swiglu ? 2 * kOutputs : kOutputs;
    const Mirror<bf16> weight(*device.cuda, random.bf16s(rows * kInputs, 0.05f));
    const DeviceMatrix matrix = on_device(weight, rows, kInputs);
    const HostMatrix host{weight.host.data(), rows, kInputs, kInputs};
    const HostMatrix gate{weight.host.data(), kOutputs, kInputs, kInputs}, up{weight.host.data() + kOutputs * kInputs, kOutputs, kInputs, kInputs};
    const LinearWeight expected_weight =
        op == GemmOp::Swiglu ? device.reference->load_gate_up(gate, up, "test").value() : device.reference->load_linear({&host, 1}, "test").value();
    for (const int tokens : {1, 7, 16, 17, 33, 64, 65, 128}) {
      const Mirror<bf16> x(*device.cuda, random.bf16s(tokens * (kInputs + kSlack)));
      const View<const bf16, 2> x_device{x.device, {tokens, kInputs}, {kInputs + kSlack, 1}}, x_host{x.host.data(), {tokens, kInputs}, {kInputs + kSlack, 1}};
      std::vector<bf16> want(static_cast<std::size_t>(tokens) * kOutputs), between(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(rows));
      if (op == GemmOp::Swiglu) {
        EXPECT_OK(device.reference->linear_swiglu({x_host, expected_weight, dense(between.data(), tokens, rows), dense(want.data(), tokens, kOutputs)}));
      } else {
        EXPECT_OK(device.reference->linear({x_host, expected_weight, dense(want.data(), tokens, kOutputs)}));
      }
      for (const int groups : {1, 2, 4})
        for (int splits = 1; splits <= 8; ++splits) {
          const FewTokensPlan plan{groups, splits, random.between(2, 4)};
          if (!check_few_tokens(op, rows, kInputs, tokens, plan)) continue;
          Mirror<bf16> y(*device.cuda, poison_bf16(tokens * (kOutputs + kSlack)));
          const View<bf16, 2> view{y.device, {tokens, kOutputs}, {kOutputs + kSlack, 1}};
          EXPECT_OK(few_tokens(device.cuda->context(), op, x_device, matrix, view, plan));
          const std::vector<bf16> first = y.pull();
          std::vector<bf16> got;
          for (int t = 0; t < tokens; ++t) {
            const auto row = first.begin() + t * (kOutputs + kSlack);
            got.insert(got.end(), row, row + kOutputs);
            for (int s = 0; s < kSlack; ++s) EXPECT_EQ(row[kOutputs + s].bits, 0xffff) << "behind token " << t;
          }
          EXPECT_LT(relative_error(got, want), op == GemmOp::Swiglu ? kRounding : kRounding / 2)
              << name(op) << ' ' << tokens << " tokens, " << groups << ' ' << splits << ' ' << plan.stages;
          y.push();
          EXPECT_OK(few_tokens(device.cuda->context(), op, x_device, matrix, view, plan));
          EXPECT_TRUE(same_bits(first, y.pull()));
        }
    }
  }
}

TEST(FewTokens, ATokensBitsDependOnThePlanAloneNotOnItsCompany) {
  Random random(32);
  Device device;
  constexpr int kOutputs = 256, kInputs = 2048, kMost = 128;
  const Mirror<bf16> weight(*device.cuda, random.bf16s(kOutputs * kInputs, 0.05f)), x(*device.cuda, random.bf16s(kMost * kInputs));
  const DeviceMatrix matrix = on_device(weight, kOutputs, kInputs);
  const FewTokensPlan plan{2, 6, 3};
  const auto outputs = [&](int tokens) {
    Mirror<bf16> y(*device.cuda, poison_bf16(tokens * kOutputs));
    EXPECT_OK(few_tokens(device.cuda->context(), GemmOp::Linear, dense<const bf16>(x.device, tokens, kInputs), matrix, dense(y.device, tokens, kOutputs), plan));
    return y.pull();
  };
  const std::vector<bf16> all = outputs(kMost);
  for (const int tokens : {1, 16, 20, 40, 100})
    EXPECT_TRUE(same_bits(outputs(tokens), std::vector<bf16>(all.begin(), all.begin() + tokens * kOutputs))) << tokens;
}

// Kernels in a row: each fetches its weight before the one before it is done, and x only after.
TEST(FewTokens, AChainOfProductsReadsWhatTheOneBeforeWrote) {
  Random random(33);
  Device device;
  constexpr int kWidth = 2560, kTokens = 64;
  const Mirror<bf16> weight(*device.cuda, random.bf16s(kWidth * kWidth, 0.02f)), x(*device.cuda, random.bf16s(kTokens * kWidth));
  const DeviceMatrix matrix = on_device(weight, kWidth, kWidth);
  Mirror<bf16> a(*device.cuda, poison_bf16(kTokens * kWidth)), b(*device.cuda, poison_bf16(kTokens * kWidth));
  const auto chain = [&](bool wait) {
    EXPECT_OK(few_tokens(device.cuda->context(), GemmOp::Linear, dense<const bf16>(x.device, kTokens, kWidth), matrix, dense(a.device, kTokens, kWidth), {2, 4, 4}));
    for (int i = 0; i < 20; ++i) {
      if (wait) EXPECT_OK(device.cuda->synchronize());
      EXPECT_OK(few_tokens(device.cuda->context(), GemmOp::Linear, dense<const bf16>(a.device, kTokens, kWidth), matrix, dense(b.device, kTokens, kWidth), {2, 6, 4}));
      if (wait) EXPECT_OK(device.cuda->synchronize());
      EXPECT_OK(few_tokens(device.cuda->context(), GemmOp::Linear, dense<const bf16>(b.device, kTokens, kWidth), matrix, dense(a.device, kTokens, kWidth), {1, 3, 4}));
    }
    return a.pull();
  };
  const std::vector<bf16> want = chain(true);
  EXPECT_TRUE(same_bits(chain(false), want));
}

TEST(FewTokens, WhatItCannotDoIsRefusedWithTheReason) {
  EXPECT_FALSE(check_few_tokens(GemmOp::Linear, 64, 64, 129, {1, 1, 2}));
  EXPECT_FALSE(check_few_tokens(GemmOp::Linear, 60, 64, 8, {1, 1, 2}));
  EXPECT_FALSE(check_few_tokens(GemmOp::Linear, 64, 64, 8, {3, 1, 2}));
  EXPECT_FALSE(check_few_tokens(GemmOp::Linear, 64, 64, 8, {1, 2, 2}));
  EXPECT_FALSE(check_few_tokens(GemmOp::Swiglu, 64, 64, 8, {1, 1, 2}));
  EXPECT_FALSE(check_few_tokens(GemmOp::Linear, 64, 64, 128, {4, 1, 8}));
  EXPECT_TRUE(check_few_tokens(GemmOp::Linear, 64, 64, 128, {1, 1, 2}));
}

// R1.5: an entry of the table decides; one that this device refuses leaves the heuristic in its place.
TEST(FewTokens, TheTableDecidesAndAnInvalidEntryFallsBack) {
  Random random(34);
  Device device;
  constexpr int kOutputs = 264, kInputs = 512, kTokens = 20;
  const Mirror<bf16> weight(*device.cuda, random.bf16s(kOutputs * kInputs, 0.05f)), x(*device.cuda, random.bf16s(kTokens * kInputs));
  const DeviceMatrix matrix = on_device(weight, kOutputs, kInputs);
  Mirror<bf16> y(*device.cuda, poison_bf16(kTokens * kOutputs)), z(*device.cuda, poison_bf16(kTokens * kOutputs));
  const auto product = [&](const std::string& entry, Mirror<bf16>& to) {
    Gemm gemm(device.cuda->context());
    gemm.use_table(GemmTable::parse("device D\ncublaslt 1\n" + entry, "test").value());
    EXPECT_OK(gemm.prepare(matrix, 64));
    EXPECT_OK(gemm.run(dense<const bf16>(x.device, kTokens, kInputs), matrix, dense(to.device, kTokens, kOutputs)));
    return to.pull();
  };
  const std::vector<bf16> mine = product("linear 264 512 17 32 few-tokens 1 4 3 us 1 limit 1\n", y);
  EXPECT_OK(few_tokens(device.cuda->context(), GemmOp::Linear, dense<const bf16>(x.device, kTokens, kInputs), matrix, dense(z.device, kTokens, kOutputs), {1, 4, 3}));
  EXPECT_TRUE(same_bits(mine, z.pull()));
  const std::vector<bf16> usual = product("", z);
  EXPECT_LT(relative_error(mine, usual), kRounding);
  // No such algorithm, and a plan that no kernel is built for.
  EXPECT_TRUE(same_bits(product("linear 264 512 17 32 cublaslt ffff ffff 0 0 0 0 0 0 us 1 limit 1\n", y), usual));
  EXPECT_TRUE(same_bits(product("linear 264 512 17 32 few-tokens 3 8 3 us 1 limit 1\n", y), usual));
}

}  // namespace
}  // namespace tandem::ops::cuda
