#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "ops/cuda/cold_timer.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/delta_chunk.cuh"
#include "ops/cuda/delta_cuda.cuh"
#include "ops/test_tools.h"

// The gated delta rule of one layer at the shape of Qwen3.5-4B: prefill as a whole and part by part, decode
// alone and as a recorded step of 24 layers. Device time by events, median of cold-L2 runs. Runs on a GPU
// machine.

namespace tandem::ops::cuda {
namespace {

constexpr DeltaShape kShape{.key_heads = 16, .value_heads = 32};
constexpr int kMostTokens = 8192, kSlots = 128, kLayers = 24, kRuns = 9;

struct Bench {
  CudaBackend& backend;
  ColdTimer timer{backend};

  template <class T>
  T* random(std::int64_t count, float scale, float mean = 0) {
    static testing::Random random(7);
    static const std::vector<float> normals = random.floats(1 << 20);
    std::vector<T> values(normals.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, bf16>)
        values[i] = to_bf16(mean + normals[i] * scale);
      else
        values[i] = mean + normals[i] * scale;
    }
    auto* memory = static_cast<T*>(backend.allocate(static_cast<std::size_t>(count) * sizeof(T), MemoryUse::Scratch, "bench").value());
    const auto block = static_cast<std::int64_t>(values.size());
    for (std::int64_t at = 0; at < count; at += block)
      (void)backend.copy_to_device(memory + at, values.data(), static_cast<std::size_t>(std::min(count - at, block)) * sizeof(T));
    return memory;
  }

  template <class T>
  T* upload(const std::vector<T>& values) {
    auto* memory = static_cast<T*>(backend.allocate(values.size() * sizeof(T), MemoryUse::Scratch, "bench").value());
    (void)backend.copy_to_device(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }

  // Median microseconds of `run` with a cold L2.
  double time(const std::function<Result<void>()>& run) { return timer.median(run, kRuns); }

  // The step of `rows` rows of `tokens` tokens, at position `past`.
  DeviceStep step(int rows, int tokens, int past, bool decode) {
    std::vector<DeviceRow> device_rows;
    std::vector<TokenInfo> infos;
    for (int r = 0; r < rows; ++r) {
      device_rows.push_back({r * tokens, tokens, past, r});
      for (int t = 0; t < tokens; ++t) infos.push_back({0, r, past + t, r});
    }
    DeviceStep step;
    step.rows = upload(device_rows);
    step.tokens = upload(infos);
    step.total_tokens = rows * tokens;
    step.total_rows = rows;
    step.decode_rows = decode ? rows : 0;
    step.prefill_chunks = decode ? 0 : rows * ((tokens + kChunk - 1) / kChunk);
    return step;
  }
};

void bench_all(CudaBackend& backend) {
  Bench bench{backend};
  const Context& context = backend.context();

  const DeltaParams params{bench.random<float>(kShape.channels() * kConvTaps, 0.4f), bench.random<float>(32, 1.0f),
                           bench.random<float>(32, 1.0f), bench.random<float>(128, 0.3f, 1.0f)};
  const std::int64_t conv_stride = kShape.channels() * kConvWindow, state_stride = std::int64_t{32} * 128 * 128;
  const DeltaState pool{.conv = bench.random<bf16>(conv_stride * kSlots, 1.0f), .conv_stride = conv_stride,
                        .state = bench.random<float>(state_stride * kSlots, 0.1f), .state_stride = state_stride};
  auto* projected = bench.random<bf16>(std::int64_t{kMostTokens} * kShape.projected_width(), 1.0f);
  auto* q = bench.random<float>(std::int64_t{kMostTokens} * 2048, 1.0f);
  auto* k = bench.random<float>(std::int64_t{kMostTokens} * 2048, 1.0f);
  auto* v = bench.random<bf16>(std::int64_t{kMostTokens} * 4096, 1.0f);
  auto* y = bench.random<bf16>(std::int64_t{kMostTokens} * 4096, 1.0f);
  auto* beta = bench.random<float>(std::int64_t{kMostTokens} * 32, 1.0f);
  auto* decay = bench.random<float>(std::int64_t{kMostTokens} * 32, 1.0f);
  const auto mixer = [&](int tokens) {
    return DeltaMixerArgs{.projected = dense<const bf16>(projected, tokens, kShape.projected_width()), .shape = kShape, .params = params,
                          .state = pool, .y = dense(y, tokens, 32, 128), .eps = 1e-6f, .q = dense(q, tokens, 16, 128),
                          .k = dense(k, tokens, 16, 128), .v = dense(v, tokens, 32, 128), .beta = dense(beta, tokens, 32),
                          .decay = dense(decay, tokens, 32)};
  };

  fmt::print("{:<24} {:>10} {:>10} {:>10}\n", "prefill rows x tokens", "all us", "prepare", "scan");
  for (const auto& [rows, tokens] : {std::pair{1, 64}, {1, 512}, {1, 2048}, {1, 8192}, {8, 64}, {16, 32}, {4, 512}, {16, 512}}) {
    const DeviceStep step = bench.step(rows, tokens, 0, false);
    const DeltaMixerArgs args = mixer(rows * tokens);
    const double prepare = bench.time([&] { return chunk_prepare(context, step, args, step.prefill_chunks); });
    const double scan = bench.time([&] { return chunk_scan(context, step, args); });
    const double all = bench.time([&] { return delta_prefill(context, step, args); });
    fmt::print("{:<24} {:>10.1f} {:>10.1f} {:>10.1f}\n", fmt::format("{} x {}", rows, tokens), all, prepare, scan);
  }

  fmt::print("{:<24} {:>10} {:>10} {:>10} {:>12}\n", "decode rows", "alone us", "TB/s", "of 4.2", "in 24 layers");
  for (const int rows : {1, 2, 4, 5, 8, 16, 32, 64, 128}) {
    const DeviceStep step = bench.step(rows, 1, 100, true);
    const DeltaMixerArgs args = mixer(rows);
    const double alone = bench.time([&] { return delta_decode(context, step, args); });
    // Layer l finds its states elsewhere, as in a model, while the slots last.
    cudaGraph_t graph{};
    cudaGraphExec_t recorded{};
    cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal);
    for (int layer = 0; layer < kLayers; ++layer) {
      DeltaMixerArgs of_layer = args;
      const int first_slot = layer * rows % (kSlots - rows + 1);
      of_layer.state.conv += first_slot * conv_stride;
      of_layer.state.state += first_slot * state_stride;
      (void)delta_decode(context, step, of_layer);
    }
    cudaStreamEndCapture(context.stream, &graph);
    cudaGraphInstantiate(&recorded, graph, 0);
    const double layers = bench.time([&] { return checked(cudaGraphLaunch(recorded, context.stream), "graph"); });
    cudaGraphExecDestroy(recorded);
    cudaGraphDestroy(graph);
    const double rate = 2.0 * state_stride * 4 * rows / alone / 1e6;
    fmt::print("{:<24} {:>10.1f} {:>10.2f} {:>9.0f}% {:>12.1f}\n", rows, alone, rate, rate / 4.22 * 100, layers / kLayers);
  }
  if (const cudaError_t status = cudaDeviceSynchronize(); status != cudaSuccess) fmt::print("{}\n", cudaGetErrorString(status));
}

}  // namespace
}  // namespace tandem::ops::cuda

int main() {
  auto backend = tandem::ops::cuda::CudaBackend::open(0);
  if (!backend) {
    fmt::print("{}\n", backend.error().message);
    return 1;
  }
  tandem::ops::cuda::bench_all(**backend);
  return 0;
}
