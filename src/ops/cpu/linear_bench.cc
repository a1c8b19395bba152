#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <vector>

#include "base/thread_team.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/bench_tools.h"
#include "ops/cpu/linear_kernels.h"

// Linear layers at the shapes of the 0.8B model: for few tokens the share of the read bandwidth, for many
// the rate and its share of the same kernel's rate out of the cache. Weights are more than any cache holds, each call takes the next one.

namespace {

using namespace tandem;
using namespace tandem::ops;

struct Setup {
  std::unique_ptr<Backend> backend;
  std::vector<LinearWeight> weights;
  std::vector<bf16> x, scratch, y;
};

Setup make_setup(CpuIsa isa, std::int64_t tokens, std::int64_t inputs, std::int64_t outputs, bool gate_up,
                 std::int64_t bytes) {
  Setup s;
  s.backend = make_cpu_backend({.threads = cpu::bench_threads(), .isa = isa});
  std::mt19937 random(1);
  const std::int64_t rows = gate_up ? 2 * outputs : outputs;
  std::vector<bf16> source(static_cast<std::size_t>(rows * inputs));
  for (bf16& w : source) w = to_bf16(static_cast<float>(random() % 1000) / 1000 - 0.5f);
  const std::int64_t copies = std::max<std::int64_t>(1, bytes / (rows * inputs * 2));
  for (std::int64_t i = 0; i < copies; ++i) {
    const HostMatrix whole{source.data(), rows, inputs, inputs};
    const HostMatrix gate{source.data(), outputs, inputs, inputs},
        up{source.data() + outputs * inputs, outputs, inputs, inputs};
    s.weights.push_back(gate_up ? s.backend->load_gate_up(gate, up, "w").value()
                                : s.backend->load_linear({&whole, 1}, "w").value());
  }
  (void)s.backend->reserve({.max_tokens = static_cast<int>(tokens),
                            .max_rows = 1,
                            .max_context = 64,
                            .max_logit_rows = 1,
                            .slots = 1,
                            .pages = 1,
                            .vocab = 10});
  s.x.resize(static_cast<std::size_t>(tokens * inputs));
  for (bf16& v : s.x) v = to_bf16(static_cast<float>(random() % 1000) / 1000 - 0.5f);
  s.scratch.resize(static_cast<std::size_t>(tokens * rows));
  s.y.resize(static_cast<std::size_t>(tokens * outputs));
  return s;
}

// Flops per second of all threads together with some blocks and their inputs in the second-level cache: what the kernel does
// when nothing comes from memory.
double peak(CpuIsa isa) {
  static std::map<CpuIsa, double> measured;
  if (const auto found = measured.find(isa); found != measured.end()) return found->second;
  constexpr int kTokens = 96;  // a multiple of every kernel's group
  constexpr std::int64_t kPairs = 512, kInputs = 2 * kPairs;
  constexpr int kBlocks = 8, kOutputs = kBlocks * cpu::kBlockOutputs;
  constexpr std::int64_t kCalls = 10, kItems = 16;
  const cpu::LinearKernel kernel = cpu::linear_kernel(isa);
  const std::vector<float> x(kTokens * kInputs);  // large enough for every form of the inputs, all of them zeros
  const std::vector<bf16> blocks((kBlocks + 1) * kPairs * 2 * cpu::kBlockOutputs);  // kernels ask for one more than they use
  ThreadTeam team(cpu::bench_threads());
  double best = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    team.run(kItems * team.size(), [&](std::int64_t, int) {
      std::vector<bf16> y(kTokens * kOutputs);
      const cpu::LinearTask task{.x = x.data(),
                                 .x_stride = kernel.input == cpu::LinearInput::Bf16Tiles ? kInputs * cpu::kTileTokens : kInputs,
                                 .tokens = kTokens,
                                 .blocks = blocks.data(),
                                 .block_count = kBlocks,
                                 .pairs = kPairs,
                                 .output = cpu::LinearOutput::Bf16,
                                 .y = y.data(),
                                 .y_stride = kOutputs,
                                 .outputs = kOutputs};
      for (std::int64_t call = 0; call < kCalls; ++call) kernel.run(task);
    });
    const double flops = 2.0 * kTokens * kInputs * kOutputs * kCalls * static_cast<double>(kItems * team.size());
    best = std::max(best, flops / cpu::seconds_since(start));
  }
  return measured[isa] = best;
}

void run_linear(benchmark::State& state, CpuIsa isa, std::int64_t inputs, std::int64_t outputs,
                bool gate_up) {
  if (isa > detected_cpu_isa()) return state.SkipWithError("this machine lacks the instruction set");
  const std::int64_t tokens = state.range(0);
  const bool streams = tokens <= 8;
  Setup s = make_setup(isa, tokens, inputs, outputs, gate_up,
                       streams ? std::int64_t{1} << 30 : std::int64_t{1} << 28);
  const std::int64_t rows = gate_up ? 2 * outputs : outputs;
  double best = 1e9;
  std::size_t next = 0;
  for (auto _ : state) {
    // One pass over all weights is one iteration: single calls are too short to time beside other work.
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < s.weights.size(); ++i, ++next) {
      const LinearWeight& weight = s.weights[next % s.weights.size()];
      if (gate_up) {
        (void)s.backend->linear_swiglu({.x = dense(s.x.data(), tokens, inputs),
                                        .weight = weight,
                                        .gate_up = dense(s.scratch.data(), tokens, rows),
                                        .y = dense(s.y.data(), tokens, outputs)});
      } else {
        (void)s.backend->linear({.x = dense(s.x.data(), tokens, inputs),
                                 .weight = weight,
                                 .y = dense(s.y.data(), tokens, outputs)});
      }
    }
    best = std::min(best, cpu::seconds_since(start) / static_cast<double>(s.weights.size()));
  }
  const double bytes = static_cast<double>(rows * inputs * 2);
  state.counters["best_us"] = best * 1e6;
  state.counters["GFLOP/s"] = bytes * static_cast<double>(tokens) / best * 1e-9;
  if (!streams) state.counters["of_cached"] = bytes * static_cast<double>(tokens) / best / peak(isa);
  if (streams) {
    state.counters["GB/s"] = bytes / best * 1e-9;
    state.counters["of_read_bandwidth"] = bytes / best / cpu::read_bandwidth();
  }
}

void all(const std::string& what, CpuIsa isa, std::int64_t inputs, std::int64_t outputs, bool gate_up) {
  auto* bench = benchmark::RegisterBenchmark((what + "/" + name(isa)).c_str(), [=](benchmark::State& state) {
    run_linear(state, isa, inputs, outputs, gate_up);
  });
  for (const int tokens : {1, 2, 4, 8, 64, 512}) bench->Arg(tokens);
  bench->ArgName("tokens")->UseRealTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

}  // namespace

int main(int argc, char** argv) {
  using enum tandem::CpuIsa;
  for (const tandem::CpuIsa isa : {Amx, Avx512Bf16, Avx512, Avx2, Scalar}) {
    all("gate_up_0.8B", isa, 1024, 3584, true);
    all("down_0.8B", isa, 3584, 1024, false);
  }
  all("gate_up_4B", Amx, 2560, 9216, true);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
