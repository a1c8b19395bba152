#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "comm/world_of_one.h"
#include "ops/cuda/block_cuda.h"
#include "ops/cuda/cold_timer.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/test_tools.h"

// The decode block at the shapes of Qwen3.5-4B, one rank: alone with a cold L2, fused and as its operators; then in
// a row of layers with delta mixers between, as a step has them, where the next block starts beside the mixer.
//
//   block_bench [sweep]     sweep: also other numbers of units in flight

namespace tandem::ops::cuda {
namespace {

constexpr int kHidden = 2560, kMixed = 4096, kIntermediate = 9216, kLayers = 4;
constexpr DeltaShape kDelta{.key_heads = 16, .value_heads = 32};
constexpr int kNext = kDelta.projected_width();
constexpr double kBlockBytes = 2.0 * kHidden * (kMixed + 3.0 * kIntermediate + kNext);

template <class T>
T* device_random(CudaBackend& backend, std::int64_t count, float scale) {
  static std::mt19937 engine(7);
  std::normal_distribution<float> normal(0, scale);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i >= (1u << 20)) {
      values[i] = values[i - (1u << 20)];
    } else if constexpr (std::is_same_v<T, bf16>) {
      values[i] = to_bf16(normal(engine));
    } else {
      values[i] = normal(engine);
    }
  }
  auto* memory = static_cast<T*>(backend.allocate(values.size() * sizeof(T), MemoryUse::Scratch, "bench").value());
  (void)backend.copy_to_device(memory, values.data(), values.size() * sizeof(T));
  return memory;
}

HostMatrix random_matrix(std::int64_t rows, std::int64_t cols) {
  static const std::vector<bf16> values = [] {
    std::vector<bf16> all(static_cast<std::size_t>(2 * kIntermediate) * kHidden + (1u << 20));
    std::mt19937 engine(9);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = i < (1u << 20) ? to_bf16((static_cast<float>(engine() >> 8) / 8388608.0f - 1.0f) * 0.03f) : all[i - (1u << 20)];
    return all;
  }();
  return {values.data(), rows, cols, cols};
}

struct Layer {
  LinearWeight out, gate_up, down, next;
  const float *post_norm, *next_norm;
};

struct Bench {
  CudaBackend& backend;
  DecodeBlock block;
  std::unique_ptr<comm::Communicator> alone = comm::make_world_of_one()->join(RankId{0}, nullptr).value();
  std::vector<Layer> layers;
  ColdTimer timer{backend};
  bf16 *mixed = nullptr, *residual = nullptr, *hidden = nullptr, *projected = nullptr, *partial = nullptr, *wide = nullptr, *act = nullptr;
  float* floats = nullptr;
  DeltaParams params;
  DeltaState state;

  explicit Bench(CudaBackend& b) : backend(b) {
    for (int i = 0; i < kLayers; ++i) {
      const auto load = [&](int rows, int cols) {
        const HostMatrix part = random_matrix(rows, cols);
        return backend.load_linear({&part, 1}, "bench").value();
      };
      layers.push_back({load(kHidden, kMixed),
                        backend.load_gate_up(random_matrix(kIntermediate, kHidden), random_matrix(kIntermediate, kHidden), "bench").value(),
                        load(kHidden, kIntermediate), load(kNext, kHidden), device_random<float>(backend, kHidden, 0.3f),
                        device_random<float>(backend, kHidden, 0.3f)});
    }
    const StepLimits limits{.max_tokens = 64, .max_rows = 64, .max_context = 1024, .max_logit_rows = 64, .slots = 64, .pages = 64, .vocab = 128};
    if (const auto reserved = backend.reserve(limits); !reserved) std::printf("%s\n", reserved.error().message.c_str());
    (void)block.prepare(backend.allocate(16, MemoryUse::Scratch, "bench").value(),
                        backend.allocate(DecodeBlock::kPartialsBytes, MemoryUse::Scratch, "bench").value());
    mixed = device_random<bf16>(backend, 64 * kMixed, 1.0f);
    residual = device_random<bf16>(backend, 64 * kHidden, 1.0f);
    hidden = device_random<bf16>(backend, 64 * kHidden, 1.0f);
    partial = device_random<bf16>(backend, 64 * kHidden, 1.0f);
    projected = device_random<bf16>(backend, 64 * kNext, 1.0f);
    wide = device_random<bf16>(backend, 64 * 2 * kIntermediate, 1.0f);
    act = device_random<bf16>(backend, 64 * kIntermediate, 1.0f);
    floats = device_random<float>(backend, 64 * kDelta.channels(), 1.0f);
    params = {device_random<float>(backend, kDelta.channels() * kConvTaps, 0.4f), device_random<float>(backend, 32, 1.0f),
              device_random<float>(backend, 32, 1.0f), device_random<float>(backend, 128, 0.3f)};
    state = {.conv = device_random<bf16>(backend, std::int64_t{kDelta.channels()} * 3 * 65, 1.0f), .conv_stride = kDelta.channels() * 3,
             .state = device_random<float>(backend, std::int64_t{32} * 128 * 128 * 65, 0.1f), .state_stride = 32 * 128 * 128};
  }

  BlockArgs args(int tokens, int layer) const {
    const Layer& l = layers[static_cast<std::size_t>(layer % kLayers)];
    return {.mixed = dense<const bf16>(mixed, tokens, kMixed), .out = l.out, .out_comm = alone.get(), .post_norm = l.post_norm,
            .gate_up = l.gate_up, .down = l.down, .comm = alone.get(), .next_norm = l.next_norm, .next = l.next,
            .residual = dense(residual, tokens, kHidden), .hidden = dense(hidden, tokens, kHidden), .projected = dense(projected, tokens, kNext),
            .eps = 1e-6f, .partial = dense(partial, tokens, kHidden), .gate_up_scratch = dense(wide, tokens, 2 * kIntermediate),
            .act = dense(act, tokens, kIntermediate)};
  }

  Result<void> mixer(int tokens) {
    return backend.delta_mixer({.projected = dense<const bf16>(projected, tokens, kNext), .shape = kDelta, .params = params, .state = state,
                                .y = dense(mixed, tokens, 32, 128), .eps = 1e-6f, .q = dense(floats, tokens, 16, 128),
                                .k = dense(floats, tokens, 16, 128), .v = dense(wide, tokens, 32, 128), .beta = dense(floats, tokens, 32),
                                .decay = dense(floats, tokens, 32)});
  }

  Result<void> fused(int tokens, int layer, const BlockTuning& tuning = {}) {
    TANDEM_ASSIGN(const bool ran, block.run(backend.context(), args(tokens, layer), tuning));
    if (!ran) return fail(ErrorKind::Unsupported, "not fused");
    return {};
  }
  Result<void> unfused(int tokens, int layer) { return backend.Backend::block(args(tokens, layer)); }

  double time(const std::function<Result<void>()>& run, int runs = 9) { return timer.median(run, runs); }

  // Layers as one graph, as a recorded step runs them.
  double time_layers(int tokens, int count, const std::function<Result<void>(int)>& one_block) {
    testing::StepMaker maker;
    const SamplingParams greedy{.temperature = 0.0f};
    for (int r = 0; r < tokens; ++r) {
      testing::Request request{.slot = SlotId{r}, .pages = {PageId{r}}, .length = 40};
      maker.add(request, RowKind::Decode, 1, &greedy);
    }
    (void)backend.begin_step(maker.view());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamBeginCapture(backend.context().stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < count; ++i) {
      if (const auto mixed_one = mixer(tokens); !mixed_one) std::printf("%s\n", mixed_one.error().message.c_str());
      if (const auto ran = one_block(i); !ran) std::printf("%s\n", ran.error().message.c_str());
    }
    if (cudaStreamEndCapture(backend.context().stream, &graph) != cudaSuccess || cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) {
      std::printf("capture failed: %s\n", cudaGetErrorString(cudaGetLastError()));
      return 0;
    }
    const double us = time([&] { return checked(cudaGraphLaunch(executable, backend.context().stream), "layers"); }, 5);
    (void)backend.end_step();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return us;
  }
};

void print(const char* what, int tokens, double us, double bytes, double copy) {
  std::printf("%-34s T:%d %9.1f us %8.1f MB %6.2f TB/s %4.0f %% of copy\n", what, tokens, us, bytes / 1e6, bytes / us / 1e6, 100 * bytes / us / copy);
  std::fflush(stdout);
}

void bench_all(CudaBackend& backend, bool sweep) {
  Bench bench(backend);
  const std::size_t big = 2ull << 30;
  void* from = backend.allocate(big, MemoryUse::Scratch, "copy").value();
  void* to = backend.allocate(big, MemoryUse::Scratch, "copy").value();
  const double copy_us = bench.time([&] { return checked(cudaMemcpyAsync(to, from, big, cudaMemcpyDeviceToDevice, backend.context().stream), "copy"); });
  const double copy = 2.0 * static_cast<double>(big) / copy_us;
  std::printf("copy %.2f TB/s\n", copy / 1e6);
  for (const int tokens : {1, 2, 4, 8}) {
    print("block, fused", tokens, bench.time([&] { return bench.fused(tokens, 0); }), kBlockBytes, copy);
    print("block, as operators", tokens, bench.time([&] { return bench.unfused(tokens, 0); }), kBlockBytes, copy);
  }
  constexpr int kCount = 16;
  const double state_bytes = 2.0 * 32 * 128 * 128 * sizeof(float);
  for (const int tokens : {1, 2, 4, 8}) {
    const double bytes = kBlockBytes + tokens * state_bytes;
    print("layer of 16, fused", tokens, bench.time_layers(tokens, kCount, [&](int i) { return bench.fused(tokens, i); }) / kCount, bytes, copy);
    print("layer of 16, as operators", tokens, bench.time_layers(tokens, kCount, [&](int i) { return bench.unfused(tokens, i); }) / kCount, bytes, copy);
  }
  if (!sweep) return;
  for (const int tokens : {1, 8})
    for (const int busy : {3, 4, 6})
      for (const int idle : {1, 2, 3, 4}) {
        const BlockTuning tuning{.in_flight_busy = busy, .in_flight_idle = idle};
        const double us = bench.time_layers(tokens, kCount, [&](int i) { return bench.fused(tokens, i, tuning); }) / kCount;
        std::printf("T:%d %d units in flight while busy, %d while idle: %6.1f us a layer\n", tokens, busy, idle, us);
        std::fflush(stdout);
      }
}

}  // namespace
}  // namespace tandem::ops::cuda

int main(int count, char**) {
  auto backend = tandem::ops::cuda::CudaBackend::open(0);
  if (!backend) {
    std::printf("%s\n", backend.error().message.c_str());
    return 1;
  }
  tandem::ops::cuda::bench_all(**backend, count > 1);
  return 0;
}
