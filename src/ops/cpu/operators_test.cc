#include <gtest/gtest.h>

#include <algorithm>

#include "ops/cpu/backend.h"
#include "ops/reference/backend.h"
#include "ops/test_tools.h"

// Every CPU operator against the reference, on every instruction set that this machine has.

namespace tandem::ops {
namespace {

using testing::KvPool;
using testing::Random;
using testing::Request;
using testing::same_bits;
using testing::StatePool;
using testing::StepMaker;

constexpr StepLimits kLimits{.max_tokens = 700,
                             .max_rows = 16,
                             .max_context = 700,
                             .max_logit_rows = 16,
                             .slots = 8,
                             .pages = 90,
                             .vocab = 1000};

std::vector<CpuIsa> instruction_sets() {
  std::vector<CpuIsa> sets;
  for (const CpuIsa isa : {CpuIsa::Scalar, CpuIsa::Avx2, CpuIsa::Avx512, CpuIsa::Avx512Bf16, CpuIsa::Amx}) {
    if (isa <= detected_cpu_isa()) sets.push_back(isa);
  }
  return sets;
}

class CpuOperators : public ::testing::TestWithParam<CpuIsa> {
 protected:
  std::unique_ptr<Backend> fast(int threads = 2) {
    auto backend = make_cpu_backend({.threads = threads, .isa = GetParam()});
    EXPECT_TRUE(backend->reserve(kLimits));
    return backend;
  }
  std::unique_ptr<Backend> plain() {
    auto backend = make_reference_backend();
    EXPECT_TRUE(backend->reserve(kLimits));
    return backend;
  }
};

INSTANTIATE_TEST_SUITE_P(Isa, CpuOperators, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return name(set.param); });

// Largest distance in units of the last place; values below `floor` count as `floor`.
float distance(const std::vector<bf16>& a, const std::vector<bf16>& b, float floor) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, testing::ulps(a[i], b[i], floor));
  return most;
}

float distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0, largest = 0;
  for (const float x : a) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float d = std::abs(a[i] - b[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return largest > 0 ? most / largest : most;
}

// ---- Operators that look at tokens only --------------------------------------------------------------

struct LinearCase {
  int tokens, inputs, outputs;
};

TEST_P(CpuOperators, LinearIsWithinOneRoundingOfTheReference) {
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
                             {600, 64, 45}}) {
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

TEST_P(CpuOperators, LinearReadsAndWritesStridedRowsOnly) {
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

TEST_P(CpuOperators, LinearSwigluIsWithinItsRoundingsOfTheReference) {
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

TEST_P(CpuOperators, NormsAreWithinOneRoundingOfTheReference) {
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

TEST_P(CpuOperators, GatedNormIsWithinItsRoundingsOfTheReference) {
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

// ---- Operators that look at rows --------------------------------------------------------------------

// A step of decode rows and prefill rows over requests of random age, with pages and slots in random order.
struct Scene {
  std::vector<Request> requests;
  int decode_rows = 0;
  std::vector<int> tokens;  // of each request's row

  int total() const {
    int sum = 0;
    for (const int n : tokens) sum += n;
    return sum;
  }
  // Rows in order; `order[i]` says which request row i serves. padding: extra decode rows on the trash slot.
  StepMaker step(const std::vector<int>& order, int padding = 0) const {
    StepMaker maker;
    const auto add = [&](bool decode) {
      for (const int r : order) {
        if ((r < decode_rows) != decode) continue;
        Request request = requests[r];
        maker.add(request, decode ? RowKind::Decode : RowKind::Prefill, tokens[r]);
      }
    };
    add(true);
    for (int i = 0; i < padding; ++i) {
      Request trash{SlotId{kLimits.slots}, {PageId{kLimits.pages}}, i % 3};
      maker.add(trash, RowKind::Decode, 1);
    }
    add(false);
    return maker;
  }
  std::vector<int> in_order() const {
    std::vector<int> order(requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    return order;
  }
};

Scene make_scene(Random& random, int decode_rows, std::vector<int> prefill_tokens, int longest = 300) {
  Scene scene;
  scene.decode_rows = decode_rows;
  const auto slots = random.shuffled(kLimits.slots);
  const auto pages = random.shuffled(kLimits.pages);
  std::size_t next_page = 0;
  const int count = decode_rows + static_cast<int>(prefill_tokens.size());
  for (int r = 0; r < count; ++r) {
    const bool decode = r < decode_rows;
    scene.tokens.push_back(decode ? 1 : prefill_tokens[r - decode_rows]);
    Request request{SlotId{slots[r]}, {}, 0};
    // Some prefill rows start a request; ages stand at and around page ends as well.
    if (decode || random.between(0, 2) > 0) {
      request.length = random.between(0, 1) ? random.between(1, longest)
                                            : 64 * random.between(1, 3) + random.between(-1, 1);
    }
    const int needed = (request.length + scene.tokens.back() + kPageTokens - 1) / kPageTokens;
    for (int i = 0; i < needed; ++i) request.pages.push_back(PageId{pages.at(next_page++)});
    scene.requests.push_back(request);
  }
  return scene;
}

// The history that a scene's requests already have.
void fill_history(Random& random, const Scene& scene, KvPool& pool, int kv_heads) {
  for (const Request& request : scene.requests) {
    for (int p = 0; p < request.length; ++p) {
      for (int part = 0; part < 2; ++part) {
        for (int h = 0; h < kv_heads; ++h) {
          const auto values = random.bf16s(kHeadDim);
          std::copy(values.begin(), values.end(),
                    pool.at(request.pages[p / kPageTokens], part, h, p % kPageTokens));
        }
      }
    }
  }
}
void fill_history(Random& random, const Scene& scene, StatePool& pool, DeltaShape shape) {
  const DeltaState view = pool.view();
  for (const Request& request : scene.requests) {
    if (request.length == 0) continue;  // stays NaN: base_pos 0 must not read it
    const auto conv = random.bf16s(shape.channels() * kConvWindow);
    const auto state = random.floats(std::int64_t{shape.value_heads} * 128 * 128, 0.1f);
    std::copy(conv.begin(), conv.end(), view.conv + request.slot.value * view.conv_stride);
    std::copy(state.begin(), state.end(), view.state + request.slot.value * view.state_stride);
  }
}

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

TEST_P(CpuOperators, AttentionIsWithinItsRoundingsOfTheReference) {
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

TEST_P(CpuOperators, DeltaMixerIsWithinItsRoundingsOfTheReference) {
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
TEST_P(CpuOperators, DeltaRuleFollowsTheReferenceToFloat32) {
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

// ---- R4.7: nothing moves, and nothing depends on company ----------------------------------------------

// Rows of a matrix of the in-order step, put where `order` puts their requests; padding rows are NaN.
template <class T>
std::vector<T> reorder(const std::vector<T>& rows, const Scene& scene, const std::vector<int>& order,
                       int padding, std::int64_t width, T filler) {
  std::vector<int> begin(scene.tokens.size() + 1, 0);
  for (std::size_t r = 0; r < scene.tokens.size(); ++r) begin[r + 1] = begin[r] + scene.tokens[r];
  std::vector<T> out;
  const auto add = [&](bool decode) {
    for (const int r : order) {
      if ((r < scene.decode_rows) != decode) continue;
      out.insert(out.end(), rows.begin() + begin[r] * width, rows.begin() + begin[r + 1] * width);
    }
  };
  add(true);
  out.insert(out.end(), padding * width, filler);
  add(false);
  return out;
}

template <class T>
std::vector<T> without_padding(const std::vector<T>& rows, const Scene& scene, int padding,
                               std::int64_t width) {
  std::vector<T> out(rows.begin(), rows.begin() + scene.decode_rows * width);
  out.insert(out.end(), rows.begin() + (scene.decode_rows + padding) * width, rows.end());
  return out;
}

// Order with the decode rows shuffled among themselves, and the prefill rows.
std::vector<int> shuffled_order(Random& random, const Scene& scene) {
  return random.shuffled(static_cast<int>(scene.requests.size()));
}

TEST_P(CpuOperators, AttentionIsTheSameInAnyOrderBesidePaddingAndOnOtherPages) {  // proves R4.7
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

TEST_P(CpuOperators, DeltaMixerIsTheSameInAnyOrderBesidePaddingAndInOtherSlots) {  // proves R4.7
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

// ---- Chunked prompts ----------------------------------------------------------------------------------

// Runs a prompt of `tokens` tokens in pieces that end at `ends`.
template <class RunPiece>
void in_pieces(Request request, const std::vector<int>& ends, const RunPiece& run) {
  int begin = 0;
  for (const int end : ends) {
    StepMaker maker;
    maker.add(request, RowKind::Prefill, end - begin);
    run(maker, begin, end - begin);
    begin = end;
  }
}

TEST_P(CpuOperators, AttentionOfAChunkedPromptIsTheWholesBitForBit) {
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

TEST_P(CpuOperators, DeltaMixerOfAPromptCutAtMultiplesOf64IsTheWholesBitForBit) {
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

// ---- Ends of the model --------------------------------------------------------------------------------

TEST_P(CpuOperators, EmbedAndHeadAgreeWithTheReference) {
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
