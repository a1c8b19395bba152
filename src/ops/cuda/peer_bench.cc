#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/one_shot.h"
#include "ops/cuda/peer_group.h"

// All-reduce alone by size, one-shot and NCCL, eager on two devices; and how fast rank threads launch.
// Time per call: a run of calls between two events, host launches included; the slower rank; best and median of runs.
namespace tandem::ops::cuda {
namespace {

constexpr int kWorld = 2;
constexpr int kRuns = 7;
constexpr std::int64_t kHidden = 2560;
constexpr std::int64_t kTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 204, 256, 409, 512, 1024, 2048, 4096, 8192};

struct Times {
  double best = 0, median = 0;
};

double since(std::chrono::steady_clock::time_point begin) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }

// Microseconds a call of every size; rank 0's.
std::vector<Times> all_reduce_times(const PeerGroupOptions& options, bool fused) {
  const auto group = make_peer_group(options).value();
  std::vector<std::vector<std::vector<double>>> all(kWorld);
  std::vector<std::jthread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] {
      auto backend = CudaBackend::open(options.ordinals[static_cast<std::size_t>(r)]).value();
      const auto comm = group->join(RankId{r}, nullptr, backend->stream()).value();
      auto room = [&] { return static_cast<bf16*>(backend->allocate(8192 * kHidden * 2, MemoryUse::Scratch, "m").value()); };
      bf16 *data = room(), *residual = room(), *y = room();
      const float* weight = backend->load_vector(std::vector<float>(kHidden, 0.5f), "w").value();
      cudaEvent_t begin, end;
      cudaEventCreate(&begin);
      cudaEventCreate(&end);
      auto* stream = static_cast<cudaStream_t>(backend->stream());
      for (const std::int64_t tokens : kTokens) {
        std::vector<double> runs;
        const int calls = tokens <= 512 ? 200 : 20;
        for (int run = 0; run <= kRuns; ++run) {
          if (!comm->barrier()) std::abort();
          cudaEventRecord(begin, stream);
          for (int call = 0; call < calls; ++call) {
            const Result<void> done =
                fused ? backend->reduce_add_norm({.partial = dense(data, tokens, kHidden), .residual = dense(residual, tokens, kHidden),
                                                  .weight = weight, .y = dense(y, tokens, kHidden), .eps = 1e-6f, .comm = comm.get()})
                      : comm->all_reduce(data, tokens * kHidden);
            if (!done) std::abort();
          }
          cudaEventRecord(end, stream);
          cudaEventSynchronize(end);
          float ms = 0;
          cudaEventElapsedTime(&ms, begin, end);
          if (run > 0) runs.push_back(ms * 1e3 / calls);
        }
        std::sort(runs.begin(), runs.end());
        all[static_cast<std::size_t>(r)].push_back(runs);
      }
      if (const auto good = comm->check(); !good) std::printf("rank %d: %s\n", r, good.error().message.c_str());
    });
  }
  threads.clear();
  std::vector<Times> times;
  for (std::size_t i = 0; i < std::size(kTokens); ++i)
    times.push_back({std::max(all[0][i].front(), all[1][i].front()), std::max(all[0][i][kRuns / 2], all[1][i][kRuns / 2])});
  return times;
}

// Launches of an almost empty kernel per second and thread, on as many devices as threads.
double launches(int count) {
  std::atomic<int> ready{0};
  std::vector<double> rates(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (int r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      auto backend = CudaBackend::open(r).value();
      void* memory = nullptr;
      cudaHostAlloc(&memory, sizeof(PeerReport), cudaHostAllocMapped);
      const auto launch = [&](int n) {
        for (int i = 0; i < n; ++i)
          if (!mark_progress(backend->context(), static_cast<PeerReport*>(memory), comm::Collective::Barrier, 0, 1, true)) std::abort();
        cudaStreamSynchronize(backend->context().stream);
      };
      launch(1000);
      ready.fetch_add(1);
      while (ready.load() < count) std::this_thread::yield();
      const auto begin = std::chrono::steady_clock::now();
      constexpr int kLaunches = 100000;
      launch(kLaunches);
      rates[static_cast<std::size_t>(r)] = kLaunches / since(begin);
      cudaFreeHost(memory);
    });
  }
  threads.clear();
  return *std::min_element(rates.begin(), rates.end());
}

void run() {
  PeerGroupOptions options{.ordinals = {0, 1}};
  options.one_shot_bytes = std::int64_t{8} << 20;
  options.all_reduce = comm::AllReduce::OneShot;
  const auto one_shot = all_reduce_times(options, false);
  const auto fused = all_reduce_times(options, true);
  options.all_reduce = comm::AllReduce::Nccl;
  const auto nccl = all_reduce_times(options, false);
  const auto nccl_norm = all_reduce_times(options, true);
  std::printf("all-reduce of T x %lld bf16, 2 ranks, eager, us a call: best (median)\n", static_cast<long long>(kHidden));
  std::printf("%6s %10s  %-18s %-18s %-18s %-18s\n", "T", "bytes", "one-shot", "nccl", "one-shot+norm", "nccl+norm");
  for (std::size_t i = 0; i < std::size(kTokens); ++i) {
    const auto text = [&](const std::vector<Times>& t) { return fmt::format("{:.1f} ({:.1f})", t[i].best, t[i].median); };
    std::printf("%6lld %10lld  %-18s %-18s %-18s %-18s\n", static_cast<long long>(kTokens[i]), static_cast<long long>(kTokens[i] * kHidden * 2),
                text(one_shot).c_str(), text(nccl).c_str(), text(fused).c_str(), text(nccl_norm).c_str());
  }
  const double one = launches(1), two = launches(2);
  std::printf("launches per second and rank thread: %.0f with one thread (%.2f us each), %.0f with two (%.2f us each)\n", one, 1e6 / one, two, 1e6 / two);
}

}  // namespace
}  // namespace tandem::ops::cuda

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  tandem::ops::cuda::run();
}
