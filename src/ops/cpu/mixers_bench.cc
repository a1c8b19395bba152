#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/cpu/bench_tools.h"
#include "ops/test_tools.h"

// Attention and the gated delta rule at the shapes of the 0.8B model (8 heads on 2 kv heads; 16 key and 16
// value heads), and sampling over the family's vocabulary.

namespace {

using namespace tandem;
using namespace tandem::ops;
using testing::Request;
using testing::StepMaker;

constexpr int kHeads = 8, kKvHeads = 2;
constexpr DeltaShape kShape{.key_heads = 16, .value_heads = 16};

std::unique_ptr<Backend> make(CpuIsa isa, int tokens, int context, int slots) {
  auto backend = make_cpu_backend({.threads = cpu::bench_threads(), .isa = isa});
  (void)backend->reserve({.max_tokens = tokens,
                          .max_rows = slots,
                          .max_context = context,
                          .max_logit_rows = 1,
                          .slots = slots,
                          .pages = (context / kPageTokens + 1) * slots,
                          .vocab = 248320});
  return backend;
}

template <class Run>
double best_seconds(benchmark::State& state, const Run& run) {
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(best, cpu::seconds_since(start));
  }
  state.counters["best_us"] = best * 1e6;
  return best;
}

// `rows` requests; tokens = 1 decodes after `context` earlier tokens, more are a prompt from `context` on.
void attention(benchmark::State& state, CpuIsa isa) {
  if (isa > detected_cpu_isa()) return state.SkipWithError("this machine lacks the instruction set");
  const int rows = static_cast<int>(state.range(0)), tokens = static_cast<int>(state.range(1)),
            context = static_cast<int>(state.range(2));
  auto backend = make(isa, rows * tokens, context + tokens, rows);
  testing::Random random(1);
  const int pages = (context + tokens + kPageTokens - 1) / kPageTokens;
  testing::KvPool pool(pages * rows, kKvHeads);
  const auto some = random.bf16s(1 << 20);
  for (std::size_t i = 0; i < pool.data().size(); ++i) pool.data()[i] = some[i % some.size()];
  StepMaker maker;
  for (int r = 0; r < rows; ++r) {
    Request request{SlotId{r}, {}, context};
    for (int p = 0; p < pages; ++p) request.pages.push_back(PageId{r * pages + p});
    maker.add(request, tokens == 1 ? RowKind::Decode : RowKind::Prefill, tokens);
  }
  (void)backend->begin_step(maker.view());
  const auto q = random.bf16s(std::int64_t{rows} * tokens * kHeads * kHeadDim);
  std::vector<bf16> y(q.size());
  const double best = best_seconds(state, [&] {
    (void)backend->attention({.q = dense(q.data(), rows * tokens, kHeads, kHeadDim),
                              .gate = dense(q.data(), rows * tokens, kHeads, kHeadDim),
                              .kv = pool.view(),
                              .y = dense(y.data(), rows * tokens, kHeads, kHeadDim)});
  });
  const double positions = static_cast<double>(rows) * tokens * (context + (tokens + 1) / 2.0);
  state.counters["GFLOP/s"] = positions * kHeads * kHeadDim * 4 / best * 1e-9;
  if (tokens == 1) {
    const double bytes = static_cast<double>(rows) * context * kKvHeads * kHeadDim * 4;
    state.counters["GB/s"] = bytes / best * 1e-9;
    state.counters["of_read_bandwidth"] = bytes / best / cpu::read_bandwidth();
  }
}

void delta_mixer(benchmark::State& state, CpuIsa isa) {
  if (isa > detected_cpu_isa()) return state.SkipWithError("this machine lacks the instruction set");
  const int rows = static_cast<int>(state.range(0)), tokens = static_cast<int>(state.range(1));
  auto backend = make(isa, rows * tokens, tokens + 1, rows);
  testing::Random random(2);
  testing::StatePool pool(rows, kShape);
  for (float& s : pool.state()) s = 0.01f;
  for (bf16& c : pool.conv()) c = to_bf16(0.1f);
  StepMaker maker;
  for (int r = 0; r < rows; ++r) {
    Request request{SlotId{r}, {PageId{r}}, 1};
    for (int p = 0; p <= tokens / kPageTokens; ++p) request.pages.push_back(PageId{r});
    maker.add(request, tokens == 1 ? RowKind::Decode : RowKind::Prefill, tokens);
  }
  (void)backend->begin_step(maker.view());
  const std::int64_t total = std::int64_t{rows} * tokens;
  const auto projected = random.bf16s(total * kShape.projected_width());
  const auto conv = random.floats(kShape.channels() * kConvTaps, 0.5f),
             a_log = random.floats(16, 1.0f, -2.0f);
  const auto dt_bias = random.floats(16), norm = random.floats(128, 0.1f, 1.0f);
  std::vector<float> q(static_cast<std::size_t>(total * kShape.key_width())), k(q.size());
  std::vector<float> beta(static_cast<std::size_t>(total * 16)), decay(beta.size());
  std::vector<bf16> v(static_cast<std::size_t>(total * kShape.value_width())), y(v.size());
  const double best = best_seconds(state, [&] {
    (void)backend->delta_mixer({.projected = dense(projected.data(), total, kShape.projected_width()),
                                .shape = kShape,
                                .params = {.conv_weight = conv.data(),
                                           .a_log = a_log.data(),
                                           .dt_bias = dt_bias.data(),
                                           .norm_weight = norm.data()},
                                .state = pool.view(),
                                .y = dense(y.data(), total, 16, 128),
                                .eps = 1e-6f,
                                .q = dense(q.data(), total, 16, 128),
                                .k = dense(k.data(), total, 16, 128),
                                .v = dense(v.data(), total, 16, 128),
                                .beta = dense(beta.data(), total, 16),
                                .decay = dense(decay.data(), total, 16)});
  });
  state.counters["us_per_token"] = best * 1e6 / static_cast<double>(total);
  if (tokens == 1) {
    const double bytes = static_cast<double>(rows) * 16 * 128 * 128 * 4 * 2;  // state in and out
    state.counters["GB/s"] = bytes / best * 1e-9;
    state.counters["of_read_bandwidth"] = bytes / best / cpu::read_bandwidth();
  }
}

void sample(benchmark::State& state, const SamplingParams& params, int top_logprobs) {
  auto backend = make(cpu_isa(), 8, 64, 1);
  testing::Random random(3);
  const auto source = random.floats(248320, 3.0f);
  Request request{SlotId{0}, {PageId{0}}, 0};
  StepMaker maker;
  maker.add(request, RowKind::Prefill, 1, &params);
  maker.add_logits({.token = 0, .slot = SlotId{0}, .position = 1, .top_logprobs = top_logprobs});
  (void)backend->begin_step(maker.view());
  std::vector<float> logits(source.size());
  std::int32_t id = 0;
  double best = 1e9;
  for (auto _ : state) {
    logits = source;
    const auto start = std::chrono::steady_clock::now();
    (void)backend->sample({.logits = dense(logits.data(), 1, 248320), .ids = &id, .vocab = 248077});
    best = std::min(best, cpu::seconds_since(start));
  }
  state.counters["best_us"] = best * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  using enum tandem::CpuIsa;
  for (const tandem::CpuIsa isa : {Amx, Avx512, Avx2}) {
    const std::string suffix = std::string("/").append(tandem::name(isa));
    benchmark::RegisterBenchmark(std::string("attention").append(suffix).c_str(), attention, isa)
        ->ArgNames({"rows", "tokens", "context"})
        ->Args({1, 1, 512})
        ->Args({1, 1, 16384})
        ->Args({8, 1, 4096})
        ->Args({1, 512, 0})
        ->Args({1, 512, 4096})
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.2);
    benchmark::RegisterBenchmark(std::string("delta_mixer").append(suffix).c_str(), delta_mixer, isa)
        ->ArgNames({"rows", "tokens"})
        ->Args({1, 1})
        ->Args({8, 1})
        ->Args({64, 1})
        ->Args({1, 64})
        ->Args({1, 512})
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.2);
  }
  benchmark::RegisterBenchmark("sample/greedy", sample, tandem::ops::SamplingParams{.temperature = 0.0f}, -1);
  benchmark::RegisterBenchmark("sample/greedy_logprobs", sample,
                               tandem::ops::SamplingParams{.temperature = 0.0f}, 20);
  benchmark::RegisterBenchmark("sample/top_k_top_p", sample,
                               tandem::ops::SamplingParams{.top_k = 20, .top_p = 0.95f}, -1);
  benchmark::RegisterBenchmark("sample/top_p", sample, tandem::ops::SamplingParams{.top_p = 0.95f}, -1);
  benchmark::RegisterBenchmark("sample/plain", sample, tandem::ops::SamplingParams{}, -1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
