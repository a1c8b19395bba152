#include <gtest/gtest.h>

#include "ops/cpu/scene.h"

// Linear attention against the reference, in any company and in chunks.

namespace tandem::ops {
namespace {

using namespace testing;

class CpuDelta : public OnEveryIsa {};

INSTANTIATE_TEST_SUITE_P(Isa, CpuDelta, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return name(set.param); });

DeltaParams params_of(const std::vector<float>& conv, const std::vector<float>& a_log,
                      const std::vector<float>& dt_bias, const std::vector<float>& norm) {
  return {.conv_weight = conv.data(),
          .a_log = a_log.data(),
          .dt_bias = dt_bias.data(),
          .norm_weight = norm.data()};
}

struct DeltaCase {
  DeltaShape shape;
  Scene scene;
  StatePool pool;
  std::vector<bf16> projected;
  std::vector<float> conv, a_log, dt_bias, norm;
};

DeltaCase delta_case(Random& random, DeltaShape shape, Scene scene) {
  DeltaCase c{shape, std::move(scene), StatePool(kLimits.slots, shape), {}, {}, {}, {}, {}};
  fill_history(random, c.scene, c.pool, shape);
  c.projected = random.bf16s(std::int64_t{c.scene.total()} * shape.projected_width(), 1.5f);
  c.conv = random.floats(shape.channels() * kConvTaps, 0.5f);
  c.a_log = random.floats(shape.value_heads, 1.0f, -2.0f);
  c.dt_bias = random.floats(shape.value_heads, 1.0f, -1.0f);
  c.norm = random.floats(128, 0.2f, 1.0f);
  return c;
}

struct DeltaOut {
  std::vector<float> q, k, beta, decay, state;
  std::vector<bf16> v, y, conv;
};

enum class Stages { Separate, Mixer };

DeltaOut run_delta(Backend& backend, const DeltaCase& c, const StepMaker& maker,
                   const std::vector<bf16>& projected, Stages stages) {
  const int tokens = maker.total_tokens();
  const DeltaShape s = c.shape;
  StatePool pool = c.pool;
  DeltaOut out{std::vector<float>(tokens * s.key_width()),
               std::vector<float>(tokens * s.key_width()),
               std::vector<float>(tokens * s.value_heads),
               std::vector<float>(tokens * s.value_heads),
               {},
               std::vector<bf16>(tokens * s.value_width()),
               std::vector<bf16>(tokens * s.value_width()),
               {}};
  EXPECT_TRUE(backend.begin_step(maker.view()));
  const DeltaMixerArgs args{.projected = dense(projected.data(), tokens, s.projected_width()),
                            .shape = s,
                            .params = params_of(c.conv, c.a_log, c.dt_bias, c.norm),
                            .state = pool.view(),
                            .y = dense(out.y.data(), tokens, s.value_heads, 128),
                            .eps = 1e-6f,
                            .q = dense(out.q.data(), tokens, s.key_heads, 128),
                            .k = dense(out.k.data(), tokens, s.key_heads, 128),
                            .v = dense(out.v.data(), tokens, s.value_heads, 128),
                            .beta = dense(out.beta.data(), tokens, s.value_heads),
                            .decay = dense(out.decay.data(), tokens, s.value_heads)};
  EXPECT_TRUE(stages == Stages::Mixer ? backend.delta_mixer(args) : backend.Backend::delta_mixer(args));
  out.state = pool.state();
  out.conv = pool.conv();
  return out;
}

TEST_P(CpuDelta, DeltaMixerIsWithinItsRoundingsOfTheReference) {
  Random random(17);
  struct Shape {
    DeltaShape shape;
    int decode_rows;
    std::vector<int> prefill;
  };
  for (const Shape& shape :
       {Shape{{1, 1}, 3, {}}, Shape{{2, 4}, 1, {3}}, Shape{{2, 6}, 2, {1, 2, 65}}, Shape{{1, 2}, 0, {200}}}) {
    const DeltaCase c = delta_case(random, shape.shape, make_scene(random, shape.decode_rows, shape.prefill));
    const StepMaker maker = c.scene.step(c.scene.in_order());
    auto a = fast(), b = plain();
    const DeltaOut got = run_delta(*a, c, maker, c.projected, Stages::Mixer);
    const DeltaOut separate = run_delta(*a, c, maker, c.projected, Stages::Separate);
    const DeltaOut want = run_delta(*b, c, maker, c.projected, Stages::Separate);
    EXPECT_LE(distance(separate.q, want.q), 0.004f);  // one flipped rounding after the convolution
    EXPECT_LE(distance(separate.k, want.k), 0.004f);
    EXPECT_LE(distance(separate.v, want.v, 1e-3f), 1.0f);
    EXPECT_LE(distance(separate.beta, want.beta), 0.004f);
    EXPECT_LE(distance(separate.decay, want.decay), 1e-5f);
    EXPECT_TRUE(same_bits(got.conv, want.conv));
    EXPECT_TRUE(same_bits(got.y, separate.y));
    EXPECT_TRUE(same_bits(got.state, separate.state));
    for (std::size_t i = 0; i < want.state.size(); ++i) {
      ASSERT_EQ(std::isnan(got.state[i]), std::isnan(want.state[i])) << i;
      if (!std::isnan(want.state[i])) {
        ASSERT_NEAR(got.state[i], want.state[i], 0.02f) << i;
      }
    }
    // The gated norm divides by the size of o, which may be small: compare against the row's own scale of 1.
    EXPECT_LE(distance(got.y, want.y, 1.0f), 8.0f);
  }
}

// The rule alone on equal inputs: float32 against float32.
TEST_P(CpuDelta, DeltaRuleFollowsTheReferenceToFloat32) {
  Random random(18);
  const DeltaShape shape{2, 4};
  const Scene scene = make_scene(random, 2, {100, 7});
  const DeltaCase c = delta_case(random, shape, scene);
  const StepMaker maker = scene.step(scene.in_order());
  auto a = fast(), b = plain();
  const DeltaOut inputs = run_delta(*b, c, maker, c.projected, Stages::Separate);
  const int tokens = maker.total_tokens();
  const auto run = [&](Backend& backend) {
    StatePool pool = c.pool;
    std::vector<bf16> o(inputs.v.size());
    EXPECT_TRUE(backend.begin_step(maker.view()));
    EXPECT_TRUE(backend.delta_rule({.q = dense(inputs.q.data(), tokens, shape.key_heads, 128),
                                    .k = dense(inputs.k.data(), tokens, shape.key_heads, 128),
                                    .v = dense(inputs.v.data(), tokens, shape.value_heads, 128),
                                    .beta = dense(inputs.beta.data(), tokens, shape.value_heads),
                                    .decay = dense(inputs.decay.data(), tokens, shape.value_heads),
                                    .shape = shape,
                                    .state = pool.view(),
                                    .o = dense(o.data(), tokens, shape.value_heads, 128)}));
    return std::pair{o, pool.state()};
  };
  const auto [o, state] = run(*a);
  const auto [want_o, want_state] = run(*b);
  float largest = 0;
  for (const bf16 x : want_o) largest = std::max(largest, std::abs(to_float(x)));
  EXPECT_LE(distance(o, want_o, largest / 64), 1.0f);
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (!std::isnan(want_state[i])) {
      ASSERT_NEAR(state[i], want_state[i], 1e-5f);
    }
  }
}

TEST_P(CpuDelta, DeltaMixerIsTheSameInAnyOrderBesidePaddingAndInOtherSlots) {  // proves R4.7
  Random random(20);
  for (int round = 0; round < 4; ++round) {
    const DeltaCase c = delta_case(random, {2, 4}, make_scene(random, 3, {40, 1, 9}));
    const int width = c.shape.projected_width(), y_width = c.shape.value_width();
    auto backend = fast(1 + round % 3);
    const DeltaOut base =
        run_delta(*backend, c, c.scene.step(c.scene.in_order()), c.projected, Stages::Mixer);

    DeltaCase moved = c;
    const auto slots = random.shuffled(kLimits.slots);
    moved.pool = StatePool(kLimits.slots, c.shape);
    const std::int64_t conv_size = c.shape.channels() * kConvWindow,
                       state_size = std::int64_t{c.shape.value_heads} * 128 * 128;
    DeltaCase original = c;
    for (std::size_t r = 0; r < moved.scene.requests.size(); ++r) {
      const int from = c.scene.requests[r].slot.value, to = slots[r];
      moved.scene.requests[r].slot = SlotId{to};
      std::copy_n(original.pool.conv().begin() + from * conv_size, conv_size,
                  moved.pool.conv().begin() + to * conv_size);
      std::copy_n(original.pool.state().begin() + from * state_size, state_size,
                  moved.pool.state().begin() + to * state_size);
    }
    const int padding = random.between(1, 4);
    const auto order = shuffled_order(random, c.scene);
    const DeltaOut out =
        run_delta(*backend, moved, moved.scene.step(order, padding),
                  reorder(c.projected, c.scene, order, padding, width, bf16{0xffff}), Stages::Mixer);
    EXPECT_TRUE(same_bits(without_padding(out.y, c.scene, padding, y_width),
                          reorder(base.y, c.scene, order, 0, y_width, bf16{})));
    std::vector<bf16> want_conv = moved.pool.conv();
    std::vector<float> want_state = moved.pool.state();
    for (std::size_t r = 0; r < c.scene.requests.size(); ++r) {
      const int from = c.scene.requests[r].slot.value, to = moved.scene.requests[r].slot.value;
      std::copy_n(base.conv.begin() + from * conv_size, conv_size, want_conv.begin() + to * conv_size);
      std::copy_n(base.state.begin() + from * state_size, state_size, want_state.begin() + to * state_size);
    }
    EXPECT_EQ(std::memcmp(out.conv.data(), want_conv.data(), kLimits.slots * conv_size * sizeof(bf16)), 0);
    EXPECT_EQ(std::memcmp(out.state.data(), want_state.data(), kLimits.slots * state_size * sizeof(float)),
              0);
  }
}

TEST_P(CpuDelta, DeltaMixerOfAPromptCutAtMultiplesOf64IsTheWholesBitForBit) {
  Random random(23);
  const int tokens = 230;
  const DeltaShape shape{1, 3};
  DeltaCase c = delta_case(random, shape, Scene{});
  const int width = shape.projected_width(), y_width = shape.value_width();
  const auto projected = random.bf16s(tokens * width, 1.5f);
  const Request request{SlotId{3}, {PageId{0}, PageId{1}, PageId{2}, PageId{3}}, 0};
  auto backend = fast();
  const auto run = [&](const std::vector<int>& ends) {
    StatePool pool(kLimits.slots, shape);
    std::vector<float> q(tokens * 128), k(tokens * 128), beta(tokens * 3), decay(tokens * 3);
    std::vector<bf16> v(tokens * y_width), y(tokens * y_width);
    in_pieces(request, ends, [&](const StepMaker& maker, int begin, int n) {
      EXPECT_TRUE(backend->begin_step(maker.view()));
      EXPECT_TRUE(backend->delta_mixer({.projected = dense(projected.data() + begin * width, n, width),
                                        .shape = shape,
                                        .params = params_of(c.conv, c.a_log, c.dt_bias, c.norm),
                                        .state = pool.view(),
                                        .y = dense(y.data() + begin * y_width, n, 3, 128),
                                        .eps = 1e-6f,
                                        .q = dense(q.data(), n, 1, 128),
                                        .k = dense(k.data(), n, 1, 128),
                                        .v = dense(v.data(), n, 3, 128),
                                        .beta = dense(beta.data(), n, 3),
                                        .decay = dense(decay.data(), n, 3)}));
    });
    return std::pair{y, pool.state_of(request.slot)};
  };
  const auto whole = run({tokens});
  const auto cut = run({64, 192, tokens});
  EXPECT_TRUE(same_bits(whole.first, cut.first));
  EXPECT_TRUE(same_bits(whole.second, cut.second));
  // Cut anywhere else: the same within the rounding of o, which the gated norm may enlarge to its own scale.
  const auto ragged = run({1, 2, 50, 66, 129, 200, tokens});
  EXPECT_LE(distance(whole.first, ragged.first, 1.0f), 4.0f);
  EXPECT_LE(distance(whole.second, ragged.second), 1e-4f);
}

}  // namespace
}  // namespace tandem::ops
