#include "ops/cuda/cuda_test_tools.h"

// Every CUDA operator against the reference: random shapes, ragged rows, NaN-filled pools.

namespace tandem::ops::cuda {
namespace {

using namespace testing;

constexpr StepLimits kLimits{.max_tokens = 700, .max_rows = 16, .max_context = 1024, .max_logit_rows = 16,
                             .slots = 8, .pages = 96, .vocab = 5003};

// One bf16 rounding apart at most, on average far less.
constexpr double kRounding = 4e-3;

TEST(CudaNorm, EqualsTheReference) {
  Random random(1);
  Pair pair(kLimits);
  pair.reserve();
  for (const int hidden : {64, 1024, 2560, 5120}) {
    const int tokens = random.between(1, 40);
    Mirror<bf16> x(*pair.cuda, random.bf16s(tokens * hidden, 3.0f));
    Mirror<float> weight(*pair.cuda, random.floats(hidden, 0.3f));
    Mirror<bf16> y(*pair.cuda, poison_bf16(tokens * hidden));
    EXPECT_OK(pair.cuda->norm({.x = dense<const bf16>(x.device, tokens, hidden), .weight = weight.device,
                               .y = dense(y.device, tokens, hidden), .eps = 1e-6f}));
    EXPECT_OK(pair.reference->norm({.x = dense<const bf16>(x.host.data(), tokens, hidden), .weight = weight.host.data(),
                                    .y = dense(y.host.data(), tokens, hidden), .eps = 1e-6f}));
    EXPECT_LT(relative_error(y.pull(), y.host), kRounding / 4) << hidden;
  }
}

TEST(CudaReduceAddNorm, AddsThenNorms) {
  Random random(2);
  Pair pair(kLimits);
  pair.reserve();
  const auto alone = comm::make_world_of_one()->join(RankId{0}, nullptr).value();
  const int tokens = 33, hidden = 2560;
  Mirror<bf16> partial(*pair.cuda, random.bf16s(tokens * hidden));
  Mirror<bf16> residual(*pair.cuda, random.bf16s(tokens * hidden));
  Mirror<float> weight(*pair.cuda, random.floats(hidden, 0.3f));
  Mirror<bf16> y(*pair.cuda, poison_bf16(tokens * hidden));
  EXPECT_OK(pair.cuda->reduce_add_norm({.partial = dense(partial.device, tokens, hidden),
                                        .residual = dense(residual.device, tokens, hidden), .weight = weight.device,
                                        .y = dense(y.device, tokens, hidden), .eps = 1e-6f, .comm = alone.get()}));
  EXPECT_OK(pair.reference->reduce_add_norm(
      {.partial = dense(partial.host.data(), tokens, hidden), .residual = dense(residual.host.data(), tokens, hidden),
       .weight = weight.host.data(), .y = dense(y.host.data(), tokens, hidden), .eps = 1e-6f, .comm = alone.get()}));
  EXPECT_TRUE(same_bits(residual.pull(), residual.host));
  EXPECT_LT(relative_error(y.pull(), y.host), kRounding / 4);
}

TEST(CudaLinear, EqualsTheReferenceForFewAndManyTokens) {
  Random random(3);
  const int inputs = 512, outputs = 1056;
  const auto a = random.bf16s(800 * inputs, 0.05f), b = random.bf16s(256 * (inputs + 64), 0.05f);
  const HostMatrix parts[] = {matrix(a, 800, inputs), {b.data() + 64, 256, inputs, inputs + 64}};
  const auto gate = random.bf16s(320 * inputs, 0.05f), up = random.bf16s(320 * inputs, 0.05f);
  Pair pair(kLimits);
  const LinearWeight on_device = pair.cuda->load_linear(parts, "test").value();
  const LinearWeight on_host = pair.reference->load_linear(parts, "test").value();
  const LinearWeight gate_up = pair.cuda->load_gate_up(matrix(gate, 320, inputs), matrix(up, 320, inputs), "test").value();
  const LinearWeight gate_up_host =
      pair.reference->load_gate_up(matrix(gate, 320, inputs), matrix(up, 320, inputs), "test").value();
  pair.reserve();
  EXPECT_TRUE(same_bits(pair.cuda->read_back(on_device).value(), pair.reference->read_back(on_host).value()));
  for (const int tokens : {1, 2, 3, 5, 8, 9, 16, 17, 64, 65, 200, 513}) {
    Mirror<bf16> x(*pair.cuda, random.bf16s(tokens * inputs));
    Mirror<bf16> y(*pair.cuda, poison_bf16(tokens * outputs));
    EXPECT_OK(pair.cuda->linear({dense<const bf16>(x.device, tokens, inputs), on_device, dense(y.device, tokens, outputs)}));
    EXPECT_OK(pair.reference->linear(
        {dense<const bf16>(x.host.data(), tokens, inputs), on_host, dense(y.host.data(), tokens, outputs)}));
    EXPECT_LT(relative_error(y.pull(), y.host), kRounding / 2) << tokens;

    Mirror<bf16> scratch(*pair.cuda, poison_bf16(tokens * 640)), act(*pair.cuda, poison_bf16(tokens * 320));
    EXPECT_OK(pair.cuda->linear_swiglu({dense<const bf16>(x.device, tokens, inputs), gate_up,
                                        dense(scratch.device, tokens, 640), dense(act.device, tokens, 320)}));
    EXPECT_OK(pair.reference->linear_swiglu({dense<const bf16>(x.host.data(), tokens, inputs), gate_up_host,
                                             dense(scratch.host.data(), tokens, 640), dense(act.host.data(), tokens, 320)}));
    EXPECT_LT(relative_error(act.pull(), act.host), kRounding) << tokens;
  }
}

// Requests that advance by ragged steps: some decode, some prefill, in pools that start as NaN.
struct Requests {
  explicit Requests(Random& random, int count, int pages_each) {
    const auto slots = random.shuffled(kLimits.slots), pages = random.shuffled(kLimits.pages);
    for (int i = 0; i < count; ++i) {
      Request r{.slot = SlotId{slots[static_cast<std::size_t>(i)]}};
      for (int p = 0; p < pages_each; ++p) r.pages.push_back(PageId{pages[static_cast<std::size_t>(i * pages_each + p)]});
      all.push_back(r);
    }
  }
  std::vector<Request> all;
};

void run_attention(int query_heads, int kv_heads, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << query_heads << " heads over " << kv_heads << ", seed " << seed);
  Random random(seed);
  Pair pair(kLimits);
  pair.reserve();
  KvPool pool(kLimits.pages, kv_heads);
  Mirror<bf16> device_pool(*pair.cuda, pool.data());
  KvPages device_view = pool.view();
  device_view.base = device_pool.device;
  Mirror<float> q_norm(*pair.cuda, random.floats(kHeadDim, 0.3f)), k_norm(*pair.cuda, random.floats(kHeadDim, 0.3f));
  Requests requests(random, 5, 12);
  const int width = (2 * query_heads + 2 * kv_heads) * kHeadDim;
  for (int round = 0; round < 4; ++round) {
    StepMaker maker;
    for (Request& r : requests.all)
      if (r.length > 0 && random.between(0, 1)) maker.add(r, RowKind::Decode, 1);
    const int decodes = static_cast<int>(maker.rows().size());
    for (Request& r : requests.all) {
      const bool decoding = std::any_of(maker.rows().begin(), maker.rows().begin() + decodes,
                                        [&](const StepRow& row) { return row.slot == r.slot; });
      if (!decoding && random.between(0, 3)) maker.add(r, RowKind::Prefill, random.between(1, 170));
    }
    const int tokens = maker.total_tokens();
    if (tokens == 0 || tokens > kLimits.max_tokens) continue;
    pair.begin(maker.view());
    Mirror<bf16> projected(*pair.cuda, random.bf16s(static_cast<std::int64_t>(tokens) * width));
    Mirror<bf16> q(*pair.cuda, poison_bf16(tokens * query_heads * kHeadDim)), y(*pair.cuda, poison_bf16(tokens * query_heads * kHeadDim));
    const auto run = [&](Backend& backend, bf16* p, const float* qn, const float* kn, bf16* qs, bf16* ys, KvPages kv) {
      EXPECT_OK(backend.attention_prepare({.projected = dense<const bf16>(p, tokens, width), .q_norm = qn, .k_norm = kn,
                                           .q = dense(qs, tokens, query_heads, kHeadDim), .kv = kv, .eps = 1e-6f,
                                           .rope_theta = 1e7f}));
      const View<const bf16, 3> gate{p + kHeadDim, {tokens, query_heads, kHeadDim}, {width, 2 * kHeadDim, 1}};
      EXPECT_OK(backend.attention({.q = dense<const bf16>(qs, tokens, query_heads, kHeadDim), .gate = gate, .kv = kv,
                                   .y = dense(ys, tokens, query_heads, kHeadDim)}));
      EXPECT_OK(backend.end_step());
    };
    run(*pair.cuda, projected.device, q_norm.device, k_norm.device, q.device, y.device, device_view);
    run(*pair.reference, projected.host.data(), q_norm.host.data(), k_norm.host.data(), q.host.data(), y.host.data(), pool.view());
    EXPECT_LT(relative_error(q.pull(), q.host), kRounding / 2);
    EXPECT_LT(relative_error(device_pool.pull(), pool.data()), kRounding / 2);
    EXPECT_LT(relative_error(y.pull(), y.host), kRounding);
  }
}

TEST(CudaAttention, EqualsTheReferenceOverRaggedRowsAndNanPools) {
  run_attention(4, 2, 11);   // groups of 2
  run_attention(16, 4, 12);  // of 4
  run_attention(6, 1, 13);   // of 6
  run_attention(8, 2, 14);
  for (std::uint64_t seed = 20; seed < 26; ++seed) run_attention(8, 4, seed);
}

void run_delta(DeltaShape shape, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << shape.key_heads << " key and " << shape.value_heads << " value heads, seed " << seed);
  Random random(seed);
  Pair pair(kLimits);
  pair.reserve();
  StatePool pool(kLimits.slots, shape);
  Mirror<bf16> conv(*pair.cuda, pool.conv());
  Mirror<float> state(*pair.cuda, pool.state());
  DeltaState device_state = pool.view();
  device_state.conv = conv.device;
  device_state.state = state.device;
  Mirror<float> conv_weight(*pair.cuda, random.floats(shape.channels() * kConvTaps, 0.4f));
  Mirror<float> a_log(*pair.cuda, random.floats(shape.value_heads, 1.5f, -2.0f)), dt_bias(*pair.cuda, random.floats(shape.value_heads));
  Mirror<float> norm_weight(*pair.cuda, random.floats(kDeltaHeadDim, 0.2f, 1.0f));
  Requests requests(random, 6, 12);
  for (int round = 0; round < 4; ++round) {
    StepMaker maker;
    for (std::size_t i = 0; i < requests.all.size(); ++i)
      if ((round + i) % 2) maker.add(requests.all[i], RowKind::Decode, 1);
    for (std::size_t i = 0; i < requests.all.size(); ++i)
      if ((round + i) % 2 == 0) maker.add(requests.all[i], RowKind::Prefill, random.between(1, 150));
    const int tokens = maker.total_tokens();
    ASSERT_LE(tokens, kLimits.max_tokens);
    pair.begin(maker.view());
    const int width = shape.projected_width();
    Mirror<bf16> projected(*pair.cuda, random.bf16s(static_cast<std::int64_t>(tokens) * width));
    Mirror<bf16> y(*pair.cuda, poison_bf16(tokens * shape.value_width())), v(*pair.cuda, poison_bf16(tokens * shape.value_width()));
    Mirror<float> q(*pair.cuda, std::vector<float>(tokens * shape.key_width())), k(*pair.cuda, q.host);
    Mirror<float> beta(*pair.cuda, std::vector<float>(tokens * shape.value_heads)), decay(*pair.cuda, beta.host);
    const auto run = [&](Backend& backend, const bf16* p, DeltaParams params, DeltaState states, bf16* ys, float* qs, float* ks,
                         bf16* vs, float* bs, float* ds) {
      EXPECT_OK(backend.delta_mixer({.projected = dense(p, tokens, width), .shape = shape, .params = params, .state = states,
                                     .y = dense(ys, tokens, shape.value_heads, kDeltaHeadDim), .eps = 1e-6f,
                                     .q = dense(qs, tokens, shape.key_heads, kDeltaHeadDim),
                                     .k = dense(ks, tokens, shape.key_heads, kDeltaHeadDim),
                                     .v = dense(vs, tokens, shape.value_heads, kDeltaHeadDim),
                                     .beta = dense(bs, tokens, shape.value_heads), .decay = dense(ds, tokens, shape.value_heads)}));
      EXPECT_OK(backend.end_step());
    };
    run(*pair.cuda, projected.device, {conv_weight.device, a_log.device, dt_bias.device, norm_weight.device}, device_state,
        y.device, q.device, k.device, v.device, beta.device, decay.device);
    run(*pair.reference, projected.host.data(),
        {conv_weight.host.data(), a_log.host.data(), dt_bias.host.data(), norm_weight.host.data()}, pool.view(), y.host.data(),
        q.host.data(), k.host.data(), v.host.data(), beta.host.data(), decay.host.data());
    EXPECT_LT(relative_error(y.pull(), y.host), 1.5 * kRounding) << "round " << round;
    EXPECT_LT(relative_error(state.pull(), pool.state()), kRounding) << "round " << round;
    EXPECT_TRUE(same_bits(conv.pull(), pool.conv())) << "round " << round;
  }
}

TEST(CudaDeltaMixer, EqualsTheReferenceOverRaggedRowsAndNanPools) {
  run_delta({.key_heads = 2, .value_heads = 2}, 31);  // R = 1
  run_delta({.key_heads = 4, .value_heads = 8}, 32);  // R = 2
  run_delta({.key_heads = 2, .value_heads = 6}, 33);  // R = 3
  for (std::uint64_t seed = 40; seed < 44; ++seed) run_delta({.key_heads = 16, .value_heads = 32}, seed);
}

// proves R4.5 for the device: rows with base_pos = 0 read nothing of the slot.
// The pools above start as NaN and requests start at 0, so a single stale read would show as NaN.

SamplingParams random_params(Random& random) {
  SamplingParams p;
  p.temperature = random.between(0, 3) == 0 ? 0.0f : 0.2f + 0.1f * static_cast<float>(random.between(0, 15));
  if (random.between(0, 1)) p.top_k = random.between(1, 60);
  if (random.between(0, 1)) p.top_p = 0.05f * static_cast<float>(random.between(1, 19));
  if (random.between(0, 2) == 0) p.min_p = 0.02f * static_cast<float>(random.between(1, 10));
  if (random.between(0, 1)) {
    p.repetition_penalty = 1.0f + 0.1f * static_cast<float>(random.between(0, 5));
    p.presence_penalty = 0.1f * static_cast<float>(random.between(-20, 20));
    p.frequency_penalty = 0.1f * static_cast<float>(random.between(-20, 20));
  }
  p.seed = random.engine()();
  p.min_tokens = random.between(0, 4);
  for (int i = random.between(0, 5); i > 0; --i) p.stop_ids.push_back(random.between(0, kLimits.vocab - 1));
  for (int i = random.between(0, 5); i > 0; --i) p.logit_bias.emplace_back(i * 37 + random.between(0, 36), 0.5f * static_cast<float>(random.between(-8, 8)));
  return p;
}

// One request for each of `params`, over `steps` steps of logits that the device and the reference share: the choices and
// logprobs must be equal. bf16 logits have many ties. The last row but one of step `nan_step` has a NaN. Adds to `compared`
// how many choices were.
struct Choices {
  std::vector<SamplingParams> params;
  int steps = 6, nan_step = 3, most_logprobs = 20;
  LogprobsMode mode = LogprobsMode::Processed;
};
void compare_choices(Random& random, Pair& pair, const Choices& choices, int& compared) {
  const int vocab = kLimits.vocab, with_token = vocab - 40, rows = static_cast<int>(choices.params.size());
  Requests requests(random, rows, 12);
  for (int step = 0; step < choices.steps; ++step) {
    StepMaker maker;
    for (std::size_t i = 0; i < requests.all.size(); ++i) {
      const bool first = step == 0;
      maker.add(requests.all[i], first ? RowKind::Prefill : RowKind::Decode, first ? 20 : 1, first ? &choices.params[i] : nullptr,
                first ? random.between(0, vocab - 30) : kLastSampled);
      const int last = maker.total_tokens() - 1;
      LogitRow row{.token = last, .slot = requests.all[i].slot, .position = requests.all[i].length, .step_index = step};
      if (choices.steps > 1 && random.between(0, 5) == 0) row.target = random.between(0, vocab - 1);
      row.top_logprobs = random.between(-1, choices.most_logprobs);
      maker.add_logits(row);
    }
    pair.begin(maker.view());
    auto logits = random.floats(static_cast<std::int64_t>(rows) * vocab, 2.5f);
    for (float& l : logits) l = round_bf16(l);
    if (step == choices.nan_step) logits[static_cast<std::size_t>((rows - 2) * vocab + 17)] = NAN;
    Mirror<float> device_logits(*pair.cuda, logits);
    Mirror<std::int32_t> ids(*pair.cuda, std::vector<std::int32_t>(static_cast<std::size_t>(rows), -7));
    EXPECT_OK(pair.cuda->note_prompt());
    EXPECT_OK(pair.reference->note_prompt());
    EXPECT_OK(pair.cuda->sample({dense(device_logits.device, rows, vocab), ids.device, 0, with_token, choices.mode}));
    EXPECT_OK(pair.reference->sample({dense(logits.data(), rows, vocab), ids.host.data(), 0, with_token, choices.mode}));
    EXPECT_OK(pair.cuda->store_sampled(ids.device));
    EXPECT_OK(pair.reference->store_sampled(ids.host.data()));
    const auto ticket = pair.cuda->end_step();
    const auto reference_ticket = pair.reference->end_step();
    const auto got = pair.cuda->wait(*ticket).value();
    const auto want = pair.reference->wait(*reference_ticket).value();
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(ids.pull(), ids.host);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].id, want[i].id) << "step " << step << " row " << i;
      ASSERT_EQ(got[i].non_finite, want[i].non_finite);
      if (want[i].non_finite) continue;
      ASSERT_EQ(got[i].logprob, want[i].logprob);
      ASSERT_EQ(got[i].top_count, want[i].top_count);
      for (int n = 0; n < want[i].top_count; ++n) {
        ASSERT_EQ(got[i].top_ids[static_cast<std::size_t>(n)], want[i].top_ids[static_cast<std::size_t>(n)]);
        ASSERT_EQ(got[i].top_logprobs[static_cast<std::size_t>(n)], want[i].top_logprobs[static_cast<std::size_t>(n)]);
      }
      ++compared;
    }
  }
}

TEST(CudaSample, ChoosesTheSameTokensAsTheReference) {
  Random random(50);
  Pair pair(kLimits);
  pair.reserve();
  int compared = 0;
  for (int round = 0; round < 30; ++round) {
    Choices choices{.mode = round % 2 ? LogprobsMode::Raw : LogprobsMode::Processed};
    for (int i = 0; i < 8; ++i) choices.params.push_back(random_params(random));
    compare_choices(random, pair, choices, compared);
  }
  EXPECT_GT(compared, 1000);
}

// Every pass over the scores that the sampler has, in one launch: racecheck (gates/device.sh) needs seconds for each.
TEST(CudaSample, EveryPathInOneStepEqualsTheReference) {
  Random random(51);
  Pair pair(kLimits);
  pair.reserve();
  int compared = 0;
  compare_choices(random, pair,
                  {.params = {{.temperature = 0.0f, .repetition_penalty = 1.3f, .min_tokens = 2, .stop_ids = {5, 9}},
                              {.temperature = 0.8f, .top_k = 20, .min_p = 0.05f, .seed = 7},
                              {.temperature = 0.9f, .seed = 8},  // its logits have the NaN
                              {.temperature = 1.1f, .top_p = 0.7f, .presence_penalty = 0.5f, .seed = 9, .logit_bias = {{40, 3.0f}}}},
                   .steps = 1, .nan_step = 0, .most_logprobs = 2, .mode = LogprobsMode::Raw},
                  compared);
  EXPECT_EQ(compared, 3);
}

TEST(CudaEmbedAndHead, EqualTheReference) {
  Random random(60);
  Pair pair(kLimits);
  const int hidden = 256, vocab = kLimits.vocab;
  const auto table = random.bf16s(static_cast<std::int64_t>(vocab) * hidden, 0.1f);
  const EmbeddingWeight on_device = pair.cuda->load_embedding(matrix(table, vocab, hidden)).value();
  const EmbeddingWeight on_host = pair.reference->load_embedding(matrix(table, vocab, hidden)).value();
  const LinearWeight head = pair.cuda->tie_head(on_device).value(), head_host = pair.reference->tie_head(on_host).value();
  pair.reserve();
  Requests requests(random, 4, 12);
  StepMaker maker;
  for (Request& r : requests.all) maker.add(r, RowKind::Prefill, random.between(1, 60), nullptr, random.between(0, vocab - 100));
  for (const StepRow& row : maker.rows()) maker.add_logits({.token = row.token_begin + row.tokens - 1, .slot = row.slot});
  const int tokens = maker.total_tokens(), rows = 4;
  pair.begin(maker.view());
  Mirror<bf16> x(*pair.cuda, poison_bf16(tokens * hidden));
  Mirror<float> logits(*pair.cuda, std::vector<float>(static_cast<std::size_t>(rows * vocab), NAN));
  EXPECT_OK(pair.cuda->embed({on_device, dense(x.device, tokens, hidden)}));
  EXPECT_OK(pair.reference->embed({on_host, dense(x.host.data(), tokens, hidden)}));
  EXPECT_TRUE(same_bits(x.pull(), x.host));
  EXPECT_OK(pair.cuda->head({dense<const bf16>(x.device, tokens, hidden), head, dense(logits.device, rows, vocab), 0}));
  EXPECT_OK(pair.reference->head({dense<const bf16>(x.host.data(), tokens, hidden), head_host, dense(logits.host.data(), rows, vocab), 0}));
  EXPECT_LT(relative_error(logits.pull(), logits.host), kRounding / 2);
}

}  // namespace
}  // namespace tandem::ops::cuda
