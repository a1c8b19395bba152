#include "ops/cuda/block_cuda.h"

#include "ops/cuda/cuda_test_tools.h"

// The fused block against the operators that it stands for, on the reference backend.

namespace tandem::ops::cuda {
namespace {

using namespace testing;

constexpr StepLimits kLimits{.max_tokens = 16, .max_rows = 16, .max_context = 1024, .max_logit_rows = 16,
                             .slots = 16, .pages = 16, .vocab = 128};

struct Widths {
  int hidden, mixed, intermediate, next;  // next = 0: the last layer
};

// The tensors of one block on one side.
struct Side {
  Backend& backend;
  LinearWeight out, gate_up, down, next;
  const float *post_norm = nullptr, *next_norm = nullptr;
};

class BlockTest : public ::testing::Test {
 protected:
  // Sums of K products of this scale have a spread of about one, so that every rounding matters.
  static std::vector<bf16> weights(Random& random, std::int64_t rows, std::int64_t cols) {
    return random.bf16s(rows * cols, 1.0f / std::sqrt(static_cast<float>(cols)));
  }

  void load(Random& random, const Widths& w) {
    const auto out = weights(random, w.hidden, w.mixed), gate = weights(random, w.intermediate, w.hidden),
               up = weights(random, w.intermediate, w.hidden), down = weights(random, w.hidden, w.intermediate),
               next = weights(random, w.next, w.hidden);
    const auto norms = random.floats(2 * w.hidden, 0.3f);
    for (Side* side : {&fused, &reference}) {
      const auto linear = [&](const std::vector<bf16>& values, int rows, int cols) {
        const HostMatrix part = matrix(values, rows, cols);
        return side->backend.load_linear({&part, 1}, "test").value();
      };
      side->out = linear(out, w.hidden, w.mixed);
      side->down = linear(down, w.hidden, w.intermediate);
      if (w.next > 0) side->next = linear(next, w.next, w.hidden);
      side->gate_up = side->backend.load_gate_up(matrix(gate, w.intermediate, w.hidden), matrix(up, w.intermediate, w.hidden), "test").value();
      const std::span<const float> values(norms);
      side->post_norm = side->backend.load_vector(values.first(static_cast<std::size_t>(w.hidden)), "test").value();
      side->next_norm = side->backend.load_vector(values.last(static_cast<std::size_t>(w.hidden)), "test").value();
    }
  }

  // After every weight is there.
  void prepare() {
    pair.reserve();
    void* const state = pair.cuda->allocate(16, MemoryUse::Scratch, "test").value();
    partials = pair.cuda->allocate(DecodeBlock::kPartialsBytes, MemoryUse::Scratch, "test").value();
    ASSERT_TRUE(block.prepare(state, partials));
  }

  void check(Random& random, int tokens, const Widths& w) {
    SCOPED_TRACE(::testing::Message() << tokens << " tokens, hidden " << w.hidden << ", mixed " << w.mixed << ", intermediate "
                                      << w.intermediate << ", next " << w.next);
    const auto values = [&](int width) { return random.bf16s(std::int64_t{tokens} * width); };
    const auto poison = [&](int width) { return poison_bf16(std::int64_t{tokens} * width); };
    Mirror<bf16> mixed(*pair.cuda, values(w.mixed)), residual(*pair.cuda, values(w.hidden));
    Mirror<bf16> hidden(*pair.cuda, poison(w.hidden)), projected(*pair.cuda, poison(std::max(w.next, 8)));
    Mirror<bf16> partial(*pair.cuda, poison(w.hidden)), act(*pair.cuda, poison(w.intermediate)), wide(*pair.cuda, poison(2 * w.intermediate));
    const auto args = [&](const Side& side, const bf16* m, bf16* r, bf16* h, bf16* p, bf16* s, bf16* g, bf16* a) {
      return BlockArgs{.mixed = dense(m, tokens, w.mixed), .out = side.out, .out_comm = alone.get(), .post_norm = side.post_norm,
                       .gate_up = side.gate_up, .down = side.down, .comm = alone.get(), .next_norm = side.next_norm,
                       .next = side.next, .residual = dense(r, tokens, w.hidden), .hidden = dense(h, tokens, w.hidden),
                       .projected = dense(p, tokens, std::max(w.next, 8)), .eps = 1e-6f, .partial = dense(s, tokens, w.hidden),
                       .gate_up_scratch = dense(g, tokens, 2 * w.intermediate), .act = dense(a, tokens, w.intermediate)};
    };
    const BlockArgs on_device = args(fused, mixed.device, residual.device, hidden.device, projected.device, partial.device, wide.device, act.device);
    const auto run = [&] {
      residual.push();
      hidden.push();
      projected.push();
      EXPECT_OK(pair.cuda->fill_bytes(partials, 0xff, DecodeBlock::kPartialsBytes));
      const auto ran = block.run(pair.cuda->context(), on_device);
      ASSERT_TRUE(ran) << ran.error().message;
      EXPECT_TRUE(*ran) << "not fused";
      EXPECT_OK(pair.cuda->synchronize());
    };
    run();
    const auto first_residual = residual.pull(), first_hidden = hidden.pull(), first_projected = projected.pull();
    run();
    EXPECT_TRUE(same_bits(first_residual, residual.pull()));
    EXPECT_TRUE(same_bits(first_projected, projected.pull()));

    EXPECT_OK(reference.backend.block(args(reference, mixed.host.data(), residual.host.data(), hidden.host.data(), projected.host.data(),
                                           partial.host.data(), wide.host.data(), act.host.data())));
    EXPECT_LT(relative_error(first_residual, residual.host), 4e-3);
    if (w.next > 0) {
      EXPECT_LT(relative_error(first_projected, projected.host), 8e-3);
    } else {
      EXPECT_LT(relative_error(first_hidden, hidden.host), 8e-3);
      EXPECT_TRUE(same_bits(first_hidden, hidden.pull()));
    }
  }

  void check_all(std::uint64_t seed, const Widths& w, std::initializer_list<int> tokens) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    load(random, w);
    prepare();
    for (const int t : tokens) check(random, t, w);
  }

  Pair pair{kLimits};
  Side fused{*pair.cuda, {}, {}, {}, {}}, reference{*pair.reference, {}, {}, {}, {}};
  std::unique_ptr<comm::Communicator> alone = comm::make_world_of_one()->join(RankId{0}, nullptr).value();
  DecodeBlock block;
  void* partials = nullptr;
};

TEST_F(BlockTest, EqualsItsOperatorsForWidthsOfGateFixtures) { check_all(1, {256, 512, 512, 1284}, {1, 2, 3, 4, 5, 6, 7, 8}); }
TEST_F(BlockTest, EqualsItsOperatorsBeforeTheFinalNorm) { check_all(2, {320, 1024, 896, 0}, {1, 3, 8}); }
TEST_F(BlockTest, EqualsItsOperatorsForWidthsOfOneBox) { check_all(3, {64, 64, 64, 40}, {1, 5, 8}); }
TEST_F(BlockTest, EqualsItsOperatorsForWidthsThatEndWithinAUnit) { check_all(4, {576, 1600, 1984, 2100}, {1, 4, 7}); }
TEST_F(BlockTest, EqualsItsOperatorsForTheSmallestPublishedSize) { check_all(5, {1024, 2048, 3584, 8224}, {1, 2, 8}); }
TEST_F(BlockTest, EqualsItsOperatorsForTheFirstTargetsSize) { check_all(6, {2560, 4096, 9216, 12352}, {1, 6}); }

TEST_F(BlockTest, LeavesWidthsThatItCannotFetchToTheOperators) {
  Random random(7);
  const Widths w{160, 512, 512, 1032};
  load(random, w);
  prepare();
  Mirror<bf16> any(*pair.cuda, poison_bf16(4096));
  const auto ran = block.run(pair.cuda->context(),
                             {.mixed = dense<const bf16>(any.device, 1, w.mixed), .out = fused.out, .out_comm = alone.get(),
                              .post_norm = fused.post_norm, .gate_up = fused.gate_up, .down = fused.down, .comm = alone.get(),
                              .next_norm = fused.next_norm, .next = fused.next, .residual = dense(any.device, 1, w.hidden),
                              .hidden = dense(any.device, 1, w.hidden), .projected = dense(any.device, 1, w.next), .eps = 1e-6f,
                              .partial = dense(any.device, 1, w.hidden), .gate_up_scratch = dense(any.device, 1, 2 * w.intermediate),
                              .act = dense(any.device, 1, w.intermediate)});
  ASSERT_TRUE(ran);
  EXPECT_FALSE(*ran);
}

}  // namespace
}  // namespace tandem::ops::cuda
