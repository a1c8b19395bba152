#include <gtest/gtest.h>

#include "ops/cpu/scene.h"

// Attention against the reference, in any company and in chunks.

namespace tandem::ops {
namespace {

using namespace testing;

class CpuAttention : public OnEveryIsa {};

INSTANTIATE_TEST_SUITE_P(Isa, CpuAttention, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return name(set.param); });

struct AttentionCase {
  int heads, kv_heads;
  Scene scene;
  KvPool pool;
  std::vector<bf16> projected;
  std::vector<float> q_norm, k_norm;
};

AttentionCase attention_case(Random& random, int heads, int kv_heads, Scene scene) {
  AttentionCase c{heads, kv_heads, std::move(scene), KvPool(kLimits.pages, kv_heads), {}, {}, {}};
  fill_history(random, c.scene, c.pool, kv_heads);
  c.projected = random.bf16s(std::int64_t{c.scene.total()} * (2 * heads + 2 * kv_heads) * kHeadDim, 1.5f);
  c.q_norm = random.floats(kHeadDim, 0.2f);
  c.k_norm = random.floats(kHeadDim, 0.2f);
  return c;
}

struct AttentionOut {
  std::vector<bf16> q, y, pool;
};

// Runs the case's projected rows in the step's order: row i of the step takes the rows of `order[i]`.
AttentionOut run_attention(Backend& backend, const AttentionCase& c, const StepMaker& maker,
                           const std::vector<bf16>& projected) {
  const int tokens = maker.total_tokens(), width = (2 * c.heads + 2 * c.kv_heads) * kHeadDim;
  KvPool pool = c.pool;
  KvPages kv = pool.view();
  kv.base = pool.data().data();
  AttentionOut out{
      std::vector<bf16>(tokens * c.heads * kHeadDim), std::vector<bf16>(tokens * c.heads * kHeadDim), {}};
  EXPECT_TRUE(backend.begin_step(maker.view()));
  EXPECT_TRUE(backend.attention_prepare({.projected = dense(projected.data(), tokens, width),
                                         .q_norm = c.q_norm.data(),
                                         .k_norm = c.k_norm.data(),
                                         .q = dense(out.q.data(), tokens, c.heads, kHeadDim),
                                         .kv = kv,
                                         .eps = 1e-6f,
                                         .rope_theta = 1e7f}));
  const View<const bf16, 3> gate{
      projected.data() + kHeadDim, {tokens, c.heads, kHeadDim}, {width, 2 * kHeadDim, 1}};
  EXPECT_TRUE(backend.attention({.q = dense(out.q.data(), tokens, c.heads, kHeadDim),
                                 .gate = gate,
                                 .kv = kv,
                                 .y = dense(out.y.data(), tokens, c.heads, kHeadDim)}));
  out.pool = pool.data();
  return out;
}

TEST_P(CpuAttention, AttentionIsWithinItsRoundingsOfTheReference) {
  Random random(16);
  struct Shape {
    int heads, kv_heads, decode_rows;
    std::vector<int> prefill;
  };
  for (const Shape& shape : {Shape{2, 1, 3, {}}, Shape{4, 2, 1, {5}}, Shape{8, 2, 0, {130}},
                             Shape{6, 1, 2, {17, 1, 64}}, Shape{3, 3, 4, {70, 33}}, Shape{10, 1, 2, {20}}}) {
    SCOPED_TRACE(::testing::Message() << shape.heads << " heads, " << shape.kv_heads << " kv heads");
    const AttentionCase c = attention_case(random, shape.heads, shape.kv_heads,
                                           make_scene(random, shape.decode_rows, shape.prefill));
    const StepMaker maker = c.scene.step(c.scene.in_order());
    auto a = fast(), b = plain();
    const AttentionOut got = run_attention(*a, c, maker, c.projected),
                       want = run_attention(*b, c, maker, c.projected);
    EXPECT_LE(distance(got.q, want.q, 0.03f), 4.0f);  // a norm's rounding goes through two products and a sum
    EXPECT_LE(distance(got.pool, want.pool, 0.03f), 4.0f);
    // o is an average of values of size 1, so its rounding error is about that of 1/8.
    EXPECT_LE(distance(got.y, want.y, 0.125f), 4.0f);
  }
}

TEST_P(CpuAttention, AttentionIsTheSameInAnyOrderBesidePaddingAndOnOtherPages) {  // proves R4.7
  Random random(19);
  for (int round = 0; round < 4; ++round) {
    const AttentionCase c = attention_case(random, 4, 2, make_scene(random, 3, {40, 9}));
    const int width = (2 * c.heads + 2 * c.kv_heads) * kHeadDim, y_width = c.heads * kHeadDim;
    auto backend = fast(1 + round % 3);
    const AttentionOut base = run_attention(*backend, c, c.scene.step(c.scene.in_order()), c.projected);

    // Other slots and pages, other order, padding rows with NaN inputs.
    AttentionCase moved = c;
    const auto pages = random.shuffled(kLimits.pages);
    const auto slots = random.shuffled(kLimits.slots);
    moved.pool = KvPool(kLimits.pages, c.kv_heads);
    const std::int64_t page_size = c.pool.view().page_stride;
    KvPool original = c.pool;
    std::size_t next = 0;
    for (std::size_t r = 0; r < moved.scene.requests.size(); ++r) {
      moved.scene.requests[r].slot = SlotId{slots[r]};
      for (std::size_t i = 0; i < moved.scene.requests[r].pages.size(); ++i) {
        const PageId from = c.scene.requests[r].pages[i], to{pages[next++]};
        std::copy_n(original.data().begin() + from.value * page_size, page_size,
                    moved.pool.data().begin() + to.value * page_size);
        moved.scene.requests[r].pages[i] = to;
      }
    }
    const int padding = random.between(1, 4);
    const auto order = shuffled_order(random, c.scene);
    const StepMaker maker = moved.scene.step(order, padding);
    const AttentionOut out = run_attention(
        *backend, moved, maker, reorder(c.projected, c.scene, order, padding, width, bf16{0xffff}));
    EXPECT_TRUE(same_bits(without_padding(out.y, c.scene, padding, y_width),
                          reorder(base.y, c.scene, order, 0, y_width, bf16{})));
    // Pages: those of the requests hold the same, all others (scratch page aside) what they held before.
    std::vector<bf16> want = moved.pool.data();
    for (std::size_t r = 0; r < c.scene.requests.size(); ++r) {
      for (std::size_t i = 0; i < c.scene.requests[r].pages.size(); ++i) {
        std::copy_n(base.pool.begin() + c.scene.requests[r].pages[i].value * page_size, page_size,
                    want.begin() + moved.scene.requests[r].pages[i].value * page_size);
      }
    }
    EXPECT_EQ(std::memcmp(out.pool.data(), want.data(), kLimits.pages * page_size * sizeof(bf16)), 0);
  }
}

TEST_P(CpuAttention, AttentionOfAChunkedPromptIsTheWholesBitForBit) {
  Random random(22);
  const int tokens = 230, heads = 4, kv_heads = 2, width = (2 * heads + 2 * kv_heads) * kHeadDim,
            y_width = heads * kHeadDim;
  const auto projected = random.bf16s(tokens * width, 1.5f);
  const auto norm = random.floats(kHeadDim, 0.2f);
  Request request{SlotId{1}, {PageId{7}, PageId{2}, PageId{9}, PageId{4}}, 0};
  auto backend = fast();
  const auto run = [&](const std::vector<int>& ends) {
    KvPool pool(kLimits.pages, kv_heads);
    std::vector<bf16> q(tokens * y_width), y(tokens * y_width);
    in_pieces(request, ends, [&](const StepMaker& maker, int begin, int n) {
      EXPECT_TRUE(backend->begin_step(maker.view()));
      const View<const bf16, 2> rows = dense(projected.data() + begin * width, n, width);
      EXPECT_TRUE(backend->attention_prepare({.projected = rows,
                                              .q_norm = norm.data(),
                                              .k_norm = norm.data(),
                                              .q = dense(q.data() + begin * y_width, n, heads, kHeadDim),
                                              .kv = pool.view(),
                                              .eps = 1e-6f,
                                              .rope_theta = 1e7f}));
      EXPECT_TRUE(backend->attention(
          {.q = dense(q.data() + begin * y_width, n, heads, kHeadDim),
           .gate = View<const bf16, 3>{rows.data + kHeadDim, {n, heads, kHeadDim}, {width, 2 * kHeadDim, 1}},
           .kv = pool.view(),
           .y = dense(y.data() + begin * y_width, n, heads, kHeadDim)}));
    });
    return y;
  };
  const auto whole = run({tokens});
  EXPECT_TRUE(same_bits(whole, run({64, 128, 192, tokens})));
  EXPECT_TRUE(same_bits(whole, run({1, 2, 63, 64, 65, 130, 229, tokens})));
}

}  // namespace
}  // namespace tandem::ops
