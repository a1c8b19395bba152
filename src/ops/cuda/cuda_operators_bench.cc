#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>

#include "comm/world_of_one.h"
#include "ops/cuda/cold_timer.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/test_tools.h"

// Every operator at the shapes of Qwen3.5-4B, one rank: device time by events, median of cold-L2 runs,
// bytes or flops, and the fraction of what this device reaches in a plain copy and a large product,
// measured in the same run. Runs on a GPU machine: gates/device.sh bench.

namespace tandem::ops::cuda {
namespace {

using testing::Random;

constexpr int kHidden = 2560, kIntermediate = 9216, kQueryHeads = 16, kKvHeads = 4, kVocab = 248320;
constexpr DeltaShape kDelta{.key_heads = 16, .value_heads = 32};
constexpr int kRuns = 7;

struct Bench {
  CudaBackend& backend;
  ColdTimer timer{backend};
  double copy_bytes_a_second = 0, flops_a_second = 0;

  explicit Bench(CudaBackend& b) : backend(b) {}

  // Median microseconds of `run` with a cold L2.
  double time(const std::function<Result<void>()>& run) { return timer.median(run, kRuns); }

  void row(const std::string& name, double bytes, double flops, const std::function<Result<void>()>& run) {
    const double us = time(run);
    if (us == 0) return;
    const double by_bytes = bytes / us * 1e6 / copy_bytes_a_second, by_flops = flops / us * 1e6 / flops_a_second;
    std::printf("%-34s %9.1f us  %9.2f MB  %8.2f TB/s %8.1f TFLOP/s  %3.0f %% of %s\n", name.c_str(), us, bytes / 1e6,
                bytes / us / 1e6, flops / us / 1e6, 100 * std::max(by_bytes, by_flops), by_bytes > by_flops ? "copy" : "GEMM");
    std::fflush(stdout);
  }
};

template <class T>
T* device_random(CudaBackend& backend, std::int64_t count, float scale) {
  // A million random values, repeated: enough to keep every unit busy with real data.
  static std::mt19937 engine(7);
  std::normal_distribution<float> normal(0, scale);
  std::vector<T> values(static_cast<std::size_t>(std::min<std::int64_t>(count, 1 << 20)));
  for (T& value : values) {
    if constexpr (std::is_same_v<T, bf16>)
      value = to_bf16(normal(engine));
    else
      value = normal(engine);
  }
  auto* memory = static_cast<T*>(backend.allocate(static_cast<std::size_t>(count) * sizeof(T), MemoryUse::Scratch, "bench").value());
  for (std::int64_t at = 0; at < count; at += static_cast<std::int64_t>(values.size()))
    (void)backend.copy_to_device(memory + at, values.data(),
                                 static_cast<std::size_t>(std::min<std::int64_t>(count - at, static_cast<std::int64_t>(values.size()))) * sizeof(T));
  return memory;
}

LinearWeight random_weight(CudaBackend& backend, std::int64_t rows, std::int64_t cols) {
  static std::vector<bf16> values;
  if (values.size() < static_cast<std::size_t>(rows * cols)) {
    // A block of random values, repeated: the arithmetic sees real data, and making it takes no time.
    constexpr std::size_t kBlock = 1 << 20;
    std::mt19937 engine(9);
    values.resize(std::max(values.size(), static_cast<std::size_t>(rows * cols)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i < kBlock ? to_bf16((static_cast<float>(engine() >> 8) / 8388608.0f - 1.0f) * 0.03f) : values[i - kBlock];
  }
  const HostMatrix matrix{values.data(), rows, cols, cols};
  return backend.load_linear({&matrix, 1}, "bench").value();
}

void bench_all(CudaBackend& backend) {
  const int most_tokens = 8192, slots = 128;
  struct Shape {
    const char* name;
    int rows, cols;
  };
  const Shape shapes[] = {{"in_proj qkv|z|b|a", kDelta.projected_width(), kHidden},
                          {"q|k|v", (2 * kQueryHeads + 2 * kKvHeads) * kHeadDim, kHidden},
                          {"gate|up", 2 * kIntermediate, kHidden},
                          {"out_proj, o_proj", kHidden, 4096},
                          {"down_proj", kHidden, kIntermediate},
                          {"head", kVocab, kHidden}};
  std::vector<LinearWeight> weights;
  for (const Shape& shape : shapes) weights.push_back(random_weight(backend, shape.rows, shape.cols));
  const StepLimits limits{.max_tokens = most_tokens, .max_rows = 136, .max_context = 16384, .max_logit_rows = 136,
                          .slots = slots, .pages = 4096, .vocab = kVocab};
  if (const auto reserved = backend.reserve(limits); !reserved) {
    std::printf("%s\n", reserved.error().message.c_str());
    return;
  }
  Bench bench(backend);

  // What this device reaches: a plain copy and a large product.
  const std::size_t big = 4ull << 30;
  void* from = backend.allocate(big, MemoryUse::Scratch, "copy").value();
  void* to = backend.allocate(big, MemoryUse::Scratch, "copy").value();
  const double copy_us = bench.time([&] {
    return checked(cudaMemcpyAsync(to, from, big, cudaMemcpyDeviceToDevice, backend.context().stream), "copy");
  });
  bench.copy_bytes_a_second = 2.0 * static_cast<double>(big) / copy_us * 1e6;
  auto* x = device_random<bf16>(backend, std::int64_t{most_tokens} * 2 * kIntermediate, 1.0f);
  auto* y = device_random<bf16>(backend, std::int64_t{most_tokens} * 2 * kIntermediate, 1.0f);
  auto* act = device_random<bf16>(backend, std::int64_t{most_tokens} * kIntermediate, 1.0f);
  const double gemm_us = bench.time([&] {
    return backend.linear({dense<const bf16>(x, most_tokens, kHidden), weights[2], dense(y, most_tokens, 2 * kIntermediate)});
  });
  bench.flops_a_second = 2.0 * most_tokens * kHidden * 2 * kIntermediate / gemm_us * 1e6;
  std::printf("copy %.2f TB/s, gate|up at 8192 tokens %.0f TFLOP/s\n", bench.copy_bytes_a_second / 1e12, bench.flops_a_second / 1e12);

  for (const int tokens : {1, 2, 4, 8, 16, 32, 64, 128, 2048, 8192})
    for (std::size_t s = 0; s < std::size(shapes); ++s) {
      if (s == 5 && tokens > 128) continue;
      const Shape& shape = shapes[s];
      const double bytes = 2.0 * (1.0 * shape.rows * shape.cols + 1.0 * tokens * (shape.rows + shape.cols));
      const double flops = 2.0 * tokens * shape.rows * shape.cols;
      auto* out = s == 5 ? static_cast<bf16*>(to) : y;
      bench.row(fmt::format("linear {} T:{}", shape.name, tokens), bytes, flops, [&] {
        return backend.linear({dense<const bf16>(x, tokens, shape.cols), weights[s], dense(out, tokens, shape.rows)});
      });
    }
  for (const int tokens : {1, 8, 64, 2048, 8192})
    bench.row(fmt::format("linear_swiglu T:{}", tokens),
              2.0 * (2.0 * kIntermediate * kHidden + 1.0 * tokens * (kHidden + kIntermediate)), 4.0 * tokens * kHidden * kIntermediate, [&] {
                return backend.linear_swiglu({dense<const bf16>(x, tokens, kHidden), weights[2], dense(y, tokens, 2 * kIntermediate),
                                              dense(act, tokens, kIntermediate)});
              });

  const auto alone = comm::make_world_of_one()->join(RankId{0}, nullptr).value();
  auto* vector = device_random<float>(backend, 1 << 16, 0.3f);
  for (const int tokens : {1, 64, 8192})
    bench.row(fmt::format("reduce_add_norm T:{}", tokens), 8.0 * tokens * kHidden, 0, [&] {
      return backend.reduce_add_norm({dense(x, tokens, kHidden), dense(y, tokens, kHidden), vector, dense(act, tokens, kHidden), 1e-6f, alone.get()});
    });

  // Mixers. Request r has slot r and pages r * per .. : decode rows at a given length, or one prompt.
  const std::int64_t page = std::int64_t{2} * kKvHeads * kPageTokens * kHeadDim;
  KvPages kv{.base = device_random<bf16>(backend, page * (limits.pages + 1), 1.0f), .page_stride = page, .v_offset = page / 2, .kv_heads = kKvHeads};
  const DeltaParams params{device_random<float>(backend, kDelta.channels() * kConvTaps, 0.4f), device_random<float>(backend, 32, 1.0f),
                           device_random<float>(backend, 32, 1.0f), device_random<float>(backend, 128, 0.3f)};
  DeltaState state{.conv = device_random<bf16>(backend, std::int64_t{kDelta.channels()} * 3 * (slots + 1), 1.0f), .conv_stride = kDelta.channels() * 3,
                   .state = device_random<float>(backend, std::int64_t{32} * 128 * 128 * (slots + 1), 0.1f), .state_stride = 32 * 128 * 128};
  auto* wide = device_random<bf16>(backend, std::int64_t{most_tokens} * kDelta.projected_width(), 1.0f);
  auto* q = device_random<float>(backend, std::int64_t{most_tokens} * 16 * 128, 1.0f);
  auto* k = device_random<float>(backend, std::int64_t{most_tokens} * 16 * 128, 1.0f);
  auto* v = device_random<bf16>(backend, std::int64_t{most_tokens} * 32 * 128, 1.0f);
  auto* beta = device_random<float>(backend, std::int64_t{most_tokens} * 32, 1.0f);
  auto* decay = device_random<float>(backend, std::int64_t{most_tokens} * 32, 1.0f);
  const auto mixer = [&](int tokens) {
    return backend.delta_mixer({.projected = dense<const bf16>(wide, tokens, kDelta.projected_width()), .shape = kDelta, .params = params,
                                .state = state, .y = dense(act, tokens, 32, 128), .eps = 1e-6f, .q = dense(q, tokens, 16, 128),
                                .k = dense(k, tokens, 16, 128), .v = dense(v, tokens, 32, 128), .beta = dense(beta, tokens, 32),
                                .decay = dense(decay, tokens, 32)});
  };
  const auto attend = [&](int tokens) {
    const int width = (2 * kQueryHeads + 2 * kKvHeads) * kHeadDim;
    const View<const bf16, 3> gate{wide + kHeadDim, {tokens, kQueryHeads, kHeadDim}, {width, 2 * kHeadDim, 1}};
    return backend.attention({.q = dense<const bf16>(y, tokens, kQueryHeads, kHeadDim), .gate = gate, .kv = kv, .y = dense(act, tokens, kQueryHeads, kHeadDim)});
  };
  auto* logits = device_random<float>(backend, std::int64_t{136} * kVocab, 2.0f);
  const SamplingParams greedy{.temperature = 0.0f};
  auto* ids = device_random<float>(backend, 1024, 1.0f);
  for (const int rows : {1, 8, 64, 128})
    for (const int length : {768, 8192}) {
      if (rows * length / kPageTokens > limits.pages) continue;
      testing::StepMaker maker;
      for (int r = 0; r < rows; ++r) {
        testing::Request request{.slot = SlotId{r}, .pages = {}, .length = length - 1};
        for (int p = 0; p < length / kPageTokens; ++p) request.pages.push_back(PageId{r * (length / kPageTokens) + p});
        maker.add(request, RowKind::Decode, 1, &greedy);
        maker.add_logits({.token = r, .slot = SlotId{r}, .position = length});
      }
      (void)backend.begin_step(maker.view());
      bench.row(fmt::format("attention decode rows:{} length:{}", rows, length), 2.0 * rows * length * kKvHeads * kHeadDim * 2,
                4.0 * rows * length * kQueryHeads * kHeadDim, [&] { return attend(rows); });
      if (length == 768) {
        bench.row(fmt::format("delta decode rows:{}", rows), 32.0 * 128 * 128 * 8 * rows, 0, [&] { return mixer(rows); });
        bench.row(fmt::format("sample greedy rows:{}", rows), 4.0 * rows * kVocab, 0, [&] {
          return backend.sample({dense(logits, rows, kVocab), reinterpret_cast<std::int32_t*>(ids), 0, kVocab, LogprobsMode::Raw});
        });
      }
      (void)backend.end_step();
    }
  for (const auto& [tokens, past] : {std::pair{512, 0}, {2048, 0}, {8192, 0}, {2048, 6144}}) {
    testing::StepMaker maker;
    testing::Request request{.slot = SlotId{0}, .pages = {}, .length = past};
    for (int p = 0; p < (past + tokens) / kPageTokens; ++p) request.pages.push_back(PageId{p});
    maker.add(request, RowKind::Prefill, tokens);
    (void)backend.begin_step(maker.view());
    const double pairs = 1.0 * tokens * past + 0.5 * tokens * (tokens + 1.0);
    bench.row(fmt::format("attention prefill T:{} past:{}", tokens, past), 0, 4.0 * pairs * kQueryHeads * kHeadDim, [&] { return attend(tokens); });
    if (past == 0)
      bench.row(fmt::format("delta prefill T:{}", tokens), 2.0 * tokens * (kDelta.projected_width() + 4096), 0, [&] { return mixer(tokens); });
    (void)backend.end_step();
  }
}

}  // namespace
}  // namespace tandem::ops::cuda

int main() {
  auto backend = tandem::ops::cuda::CudaBackend::open(0);
  if (!backend) {
    std::printf("%s\n", backend.error().message.c_str());
    return 1;
  }
  tandem::ops::cuda::bench_all(**backend);
  return 0;
}
