#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ops/cpu/backend.h"
#include "ops/test_tools.h"

// Nothing of the serving path allocates: every allocation of the test program is counted here.

namespace {
std::atomic<std::int64_t> allocations{0};
}

// Not inlined, so that the compiler does not take the pair apart and call it mismatched.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace tandem::ops {
namespace {

using testing::Random;
using testing::Request;
using testing::StepMaker;

TEST(CpuBackend, AStepAllocatesNothing) {
  constexpr int kHidden = 64, kVocab = 100, kHeads = 2, kChannels = 48;
  constexpr DeltaShape kShape{.key_heads = 1, .value_heads = 2};
  Random random(50);
  auto backend = make_cpu_backend({.threads = 2});
  ASSERT_TRUE(backend->reserve({.max_tokens = 200,
                                .max_rows = 4,
                                .max_context = 300,
                                .max_logit_rows = 4,
                                .slots = 3,
                                .pages = 10,
                                .vocab = kVocab}));
  const auto load = [&](std::vector<bf16>& data, int rows, int cols) {
    data = random.bf16s(rows * cols, 0.1f);
    const HostMatrix part = testing::matrix(data, rows, cols);
    return backend->load_linear({&part, 1}, "w").value();
  };
  constexpr int kQkv = (2 * kHeads + 2) * kHeadDim;
  std::vector<bf16> table = random.bf16s(kVocab * kHidden), w1, w2, w3,
                    gate = random.bf16s(kChannels * kHidden), up = gate;
  const EmbeddingWeight embedding = backend->load_embedding(testing::matrix(table, kVocab, kHidden)).value();
  const LinearWeight head = backend->tie_head(embedding).value();
  const LinearWeight qkv = load(w1, kQkv, kHidden), in = load(w2, kShape.projected_width(), kHidden),
                     odd = load(w3, 50, kHidden);
  const LinearWeight gate_up = backend
                                   ->load_gate_up(testing::matrix(gate, kChannels, kHidden),
                                                  testing::matrix(up, kChannels, kHidden), "gu")
                                   .value();
  testing::KvPool kv(10, 1);
  testing::StatePool state(3, kShape);
  const auto ones = random.floats(4096, 0.1f, 1.0f);
  constexpr int kMost = 200;
  std::vector<bf16> x(kMost * kHidden), y(kMost * kHidden), p(kMost * kQkv), q(kMost * kHeads * kHeadDim),
      a(q.size()), u(kMost * kShape.projected_width()), v(kMost * 256), o(v.size()), g(kMost * 2 * kChannels),
      m(kMost * kChannels), r(kMost * 50);
  std::vector<float> dq(kMost * 128), dk(dq.size()), beta(kMost * 2), decay(beta.size()), logits(4 * kVocab);
  std::vector<std::int32_t> ids(4);

  const auto run = [&](const StepMaker& maker) {
    const std::int64_t t = maker.total_tokens(), rows = std::ssize(maker.view().logit_rows);
    ASSERT_TRUE(backend->begin_step(maker.view()));
    ASSERT_TRUE(backend->note_prompt());
    ASSERT_TRUE(backend->embed({.weight = embedding, .x = dense(x.data(), t, kHidden)}));
    ASSERT_TRUE(backend->norm({.x = dense(x.data(), t, kHidden),
                               .weight = ones.data(),
                               .y = dense(y.data(), t, kHidden),
                               .eps = 1e-6f}));
    ASSERT_TRUE(
        backend->linear({.x = dense(y.data(), t, kHidden), .weight = qkv, .y = dense(p.data(), t, kQkv)}));
    ASSERT_TRUE(
        backend->linear({.x = dense(y.data(), t, kHidden), .weight = odd, .y = dense(r.data(), t, 50)}));
    ASSERT_TRUE(backend->attention_prepare({.projected = dense(p.data(), t, kQkv),
                                            .q_norm = ones.data(),
                                            .k_norm = ones.data(),
                                            .q = dense(q.data(), t, kHeads, kHeadDim),
                                            .kv = kv.view(),
                                            .eps = 1e-6f,
                                            .rope_theta = 1e7f}));
    ASSERT_TRUE(backend->attention({.q = dense(q.data(), t, kHeads, kHeadDim),
                                    .gate = dense(q.data(), t, kHeads, kHeadDim),
                                    .kv = kv.view(),
                                    .y = dense(a.data(), t, kHeads, kHeadDim)}));
    ASSERT_TRUE(backend->linear(
        {.x = dense(y.data(), t, kHidden), .weight = in, .y = dense(u.data(), t, kShape.projected_width())}));
    ASSERT_TRUE(backend->delta_mixer({.projected = dense(u.data(), t, kShape.projected_width()),
                                      .shape = kShape,
                                      .params = {ones.data(), ones.data(), ones.data(), ones.data()},
                                      .state = state.view(),
                                      .y = dense(o.data(), t, 2, 128),
                                      .eps = 1e-6f,
                                      .q = dense(dq.data(), t, 1, 128),
                                      .k = dense(dk.data(), t, 1, 128),
                                      .v = dense(v.data(), t, 2, 128),
                                      .beta = dense(beta.data(), t, 2),
                                      .decay = dense(decay.data(), t, 2)}));
    ASSERT_TRUE(backend->linear_swiglu({.x = dense(y.data(), t, kHidden),
                                        .weight = gate_up,
                                        .gate_up = dense(g.data(), t, 2 * kChannels),
                                        .y = dense(m.data(), t, kChannels)}));
    ASSERT_TRUE(backend->reduce_add_norm({.partial = dense(y.data(), t, kHidden),
                                          .residual = dense(x.data(), t, kHidden),
                                          .weight = ones.data(),
                                          .y = dense(y.data(), t, kHidden),
                                          .eps = 1e-6f,
                                          .comm = nullptr}));
    ASSERT_TRUE(backend->head({.hidden = dense(y.data(), t, kHidden),
                               .weight = head,
                               .logits = dense(logits.data(), rows, kVocab)}));
    ASSERT_TRUE(backend->sample(
        {.logits = dense(logits.data(), rows, kVocab), .ids = ids.data(), .vocab = kVocab - 3}));
    ASSERT_TRUE(backend->store_sampled(ids.data()));
    ASSERT_TRUE(backend->wait(backend->end_step().value()));
  };

  const SamplingParams first{.temperature = 0.8f, .top_p = 0.9f, .repetition_penalty = 1.1f, .seed = 1};
  const SamplingParams second{.top_k = 5, .presence_penalty = 0.5f, .seed = 2, .logit_bias = {{3, 1.0f}}};
  Request one{SlotId{0}, {PageId{1}, PageId{3}, PageId{5}}, 0},
      two{SlotId{2}, {PageId{0}, PageId{2}, PageId{4}}, 0};
  StepMaker prompt, mixed, decode;
  prompt.add(one, RowKind::Prefill, 70, &first);
  prompt.add_logits({.token = 69, .slot = one.slot, .position = 70, .top_logprobs = 5});
  mixed.add(one, RowKind::Decode, 1, nullptr, kLastSampled);
  mixed.add(two, RowKind::Prefill, 90, &second);
  mixed.add_logits({.token = 0, .slot = one.slot, .position = 71});
  mixed.add_logits({.token = 90, .slot = two.slot, .position = 90, .top_logprobs = 20});
  decode.add(one, RowKind::Decode, 1, nullptr, kLastSampled);
  decode.add(two, RowKind::Decode, 1, nullptr, kLastSampled);
  decode.add_logits({.token = 0, .slot = one.slot, .position = 72});
  decode.add_logits({.token = 1, .slot = two.slot, .position = 91});

  run(prompt);  // binding a request's settings may copy lists, so its steps are not counted
  run(mixed);
  const std::int64_t before = allocations.load();
  run(decode);
  EXPECT_EQ(allocations.load(), before);
}

}  // namespace
}  // namespace tandem::ops
