#include "comm/shared_memory.h"

#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

// all_reduce between rank threads, by elements and ranks. Each rank sums its share of all buffers and writes
// it to all: memory bandwidth limits large messages, the two meetings small ones.
namespace tandem::comm {
namespace {

void all_reduce(benchmark::State& state) {
  const std::int64_t elements = state.range(0);
  const int world = static_cast<int>(state.range(1));
  const bool spins = world <= static_cast<int>(std::thread::hardware_concurrency());
  auto group = make_shared_memory({.world = world, .spin = spins ? 4000 : 0});
  std::vector<std::vector<bf16>> data(static_cast<std::size_t>(world),
                                      std::vector<bf16>(static_cast<std::size_t>(elements)));
  std::vector<std::jthread> peers;
  for (int r = 1; r < world; ++r) {
    peers.emplace_back([&, r] {
      auto comm = (*group)->join(RankId{r}, nullptr);
      while ((*comm)->all_reduce(data[static_cast<std::size_t>(r)].data(), elements)) {
      }
    });
  }
  {
    auto comm = (*group)->join(RankId{0}, nullptr);
    for (auto _ : state) {
      if (!(*comm)->all_reduce(data[0].data(), elements)) state.SkipWithError("aborted");
    }
    (*group)->abort({ErrorKind::Cancelled, "the measurement is over"});
  }
  for (const auto& mine : data) {
    if (elements > 0 && to_float(mine[0]) != 0.0f) state.SkipWithError("a wrong sum");
  }
  state.SetBytesProcessed(state.iterations() * elements * static_cast<std::int64_t>(sizeof(bf16)) * world);
}
BENCHMARK(all_reduce)
    ->ArgNames({"elements", "world"})
    ->ArgsProduct({{2560, 40960, 1310720}, {2, 4}})
    ->UseRealTime();

}  // namespace
}  // namespace tandem::comm

BENCHMARK_MAIN();
