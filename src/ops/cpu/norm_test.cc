#include <gtest/gtest.h>

#include "ops/cpu/scene.h"

// Norms, embedding and head against the reference.

namespace tandem::ops {
namespace {

using namespace testing;

class CpuNorm : public OnEveryIsa {};

INSTANTIATE_TEST_SUITE_P(Isa, CpuNorm, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return name(set.param); });

TEST_P(CpuNorm, NormsAreWithinOneRoundingOfTheReference) {
  Random random(14);
  for (const int hidden : {1, 7, 32, 100, 256, 1000}) {
    const int tokens = random.between(1, 30);
    const auto x = random.bf16s(tokens * hidden, 2.0f), partial = random.bf16s(tokens * hidden);
    const auto weight = random.floats(hidden, 0.3f);
    const auto run = [&](Backend& backend) {
      std::vector<bf16> y(x.size()), residual = x, share = partial, normed(x.size());
      EXPECT_TRUE(backend.norm({.x = dense(x.data(), tokens, hidden),
                                .weight = weight.data(),
                                .y = dense(y.data(), tokens, hidden),
                                .eps = 1e-6f}));
      EXPECT_TRUE(backend.reduce_add_norm({.partial = dense(share.data(), tokens, hidden),
                                           .residual = dense(residual.data(), tokens, hidden),
                                           .weight = weight.data(),
                                           .y = dense(normed.data(), tokens, hidden),
                                           .eps = 1e-6f,
                                           .comm = nullptr}));
      return std::array{y, residual, normed};
    };
    auto a = fast(), b = plain();
    const auto got = run(*a), want = run(*b);
    EXPECT_LE(distance(got[0], want[0], 1e-4f), 1.0f);
    EXPECT_TRUE(same_bits(got[1], want[1]));
    EXPECT_LE(distance(got[2], want[2], 1e-4f), 1.0f);
  }
}

TEST_P(CpuNorm, GatedNormIsWithinItsRoundingsOfTheReference) {
  Random random(15);
  const int tokens = 19, heads = 3, z_stride = heads * 128 + 50;
  const auto o = random.bf16s(tokens * heads * 128), z = random.bf16s(tokens * z_stride, 2.0f);
  const auto weight = random.floats(128, 0.2f, 1.0f);
  const auto run = [&](Backend& backend) {
    std::vector<bf16> y = o;  // in place
    EXPECT_TRUE(
        backend.gated_norm({.o = dense(y.data(), tokens, heads, 128),
                            .z = View<const bf16, 3>{z.data(), {tokens, heads, 128}, {z_stride, 128, 1}},
                            .weight = weight.data(),
                            .y = dense(y.data(), tokens, heads, 128),
                            .eps = 1e-6f}));
    return y;
  };
  auto a = fast(), b = plain();
  // The inner roundings may each fall the other way once.
  EXPECT_LE(distance(run(*a), run(*b), 1e-3f), 2.0f);
}

TEST_P(CpuNorm, EmbedAndHeadAgreeWithTheReference) {
  Random random(21);
  const int vocab = kLimits.vocab, hidden = 72;
  const auto table = random.bf16s(vocab * hidden);
  Request r0{SlotId{3}, {PageId{0}}, 0}, r1{SlotId{5}, {PageId{1}}, 0};
  const auto run = [&](Backend& backend) {
    const EmbeddingWeight embedding = backend.load_embedding(testing::matrix(table, vocab, hidden)).value();
    const LinearWeight head = backend.tie_head(embedding).value();
    EXPECT_TRUE(same_bits(backend.read_back(head).value(), table));
    SamplingParams greedy{.temperature = 0.0f};
    Request a = r0, b = r1;
    StepMaker first;
    first.add(a, RowKind::Prefill, 5, &greedy, 10);
    first.add(b, RowKind::Prefill, 7, &greedy, 500);
    first.add_logits({.token = 4, .slot = a.slot, .position = 5});
    first.add_logits({.token = 11, .slot = b.slot, .position = 7});
    EXPECT_TRUE(backend.begin_step(first.view()));
    std::vector<bf16> x(12 * hidden);
    EXPECT_TRUE(backend.embed({.weight = embedding, .x = dense(x.data(), 12, hidden)}));
    std::vector<float> logits(2 * vocab);
    EXPECT_TRUE(backend.head(
        {.hidden = dense(x.data(), 12, hidden), .weight = head, .logits = dense(logits.data(), 2, vocab)}));
    std::vector<std::int32_t> ids(2);
    const std::vector<float> kept = logits;
    EXPECT_TRUE(
        backend.sample({.logits = dense(logits.data(), 2, vocab), .ids = ids.data(), .vocab = vocab}));
    EXPECT_TRUE(backend.store_sampled(ids.data()));
    EXPECT_TRUE(backend.wait(backend.end_step().value()));
    StepMaker second;
    second.add(b, RowKind::Decode, 1, nullptr, kLastSampled);
    second.add(a, RowKind::Decode, 1, nullptr, kLastSampled);
    EXPECT_TRUE(backend.begin_step(second.view()));
    std::vector<bf16> next(2 * hidden);
    EXPECT_TRUE(backend.embed({.weight = embedding, .x = dense(next.data(), 2, hidden)}));
    EXPECT_TRUE(std::equal(next.begin(), next.begin() + hidden, table.begin() + ids[1] * hidden));
    EXPECT_TRUE(std::equal(next.begin() + hidden, next.end(), table.begin() + ids[0] * hidden));
    return kept;
  };
  auto a = fast(), b = plain();
  const auto got = run(*a), want = run(*b);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(testing::ulps(to_bf16(got[i]), to_bf16(want[i]), 0.5f), 1.0f);
    EXPECT_EQ(to_float(to_bf16(got[i])), got[i]);
  }
}

}  // namespace
}  // namespace tandem::ops
