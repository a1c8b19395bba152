#include "base/thread_team.h"

#include <benchmark/benchmark.h>

namespace {

// What an operator pays to be shared out: fork and join of a loop that does nothing.
void fork_join(benchmark::State& state) {
  tandem::ThreadTeam team(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    team.run(state.range(0), [](std::int64_t i, int) { benchmark::DoNotOptimize(i); });
  }
}
BENCHMARK(fork_join)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
