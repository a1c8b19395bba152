#include "ops/cuda/gemm_tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ops/cuda/cold_timer.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/few_tokens.cuh"
#include "ops/cuda/lt_product.h"
#include "ops/cuda/norm.cuh"
#include "ops/cuda/swiglu.cuh"
#include "ops/cuda/tune_kernels.cuh"

namespace tandem::ops::cuda {
namespace {

// Where products are measured; an entry serves from the count behind the one before it. Each is a bucket's end.
constexpr int kPoints[] = {4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 512, 1024, 2048, 4096, 8192};
constexpr int kHeuristics = 50;
constexpr int kFirstRuns = 3, kFinalRuns = 11, kFinalists = 6;
constexpr double kWorthwhile = 0.98;  // of the heuristic's time: a smaller gain is noise
constexpr std::int64_t kChainBytes = 320 << 20;  // of weights in a chain: several times the L2
constexpr int kMostLinks = 12, kNormWidth = 2048, kNormTokens = 128;

struct Candidate {
  GemmEntry entry;
  double us = 0;
};

std::int32_t field(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  std::int32_t value = 0;
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS) return 0;
  if (written == 2) value &= 0xffff;
  return value;
}

GemmEntry library_entry(std::int64_t n, std::int64_t k, const cublasLtMatmulAlgo_t& algorithm) {
  GemmEntry entry{.op = GemmOp::Linear, .n = n, .k = k, .kind = GemmKind::Library};
  std::ranges::copy(algorithm.data, entry.words.begin());
  entry.about = fmt::format("id {} tile {} stages {} split-k {} reduction {} swizzle {} custom {} inner {} cluster {}",
                            field(algorithm, CUBLASLT_ALGO_CONFIG_ID), field(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
                            field(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID), field(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                            field(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME), field(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                            field(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), field(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
                            field(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
  return entry;
}

class Tuner {
 public:
  explicit Tuner(const TuneOptions& options, CudaBackend& backend) : options_(options), backend_(backend), timer_(backend) {}

  Result<void> prepare() {
    std::int64_t x = 0, y = 0;
    for (const TuneShape& shape : options_.shapes) {
      x = std::max({x, shape.most_tokens * shape.k, std::int64_t{kNormTokens} * kNormWidth});
      y = std::max(y, shape.most_tokens * shape.n);
    }
    TANDEM_ASSIGN(x_, random(x, 1.0f, "inputs"));
    TANDEM_ASSIGN(y_, random(y, 1.0f, "outputs"));
    TANDEM_ASSIGN(truth_, random(y, 1.0f, "outputs to compare"));
    TANDEM_ASSIGN(norm_weight_, random(2 * kNormWidth, 1.0f, "norm"));
    TANDEM_ASSIGN(norm_, random(kNormTokens * kNormWidth, 1.0f, "norm"));
    TANDEM_ASSIGN(scratch_, backend_.allocate(sizeof(Difference), MemoryUse::Scratch, "comparison"));
    return measure_limits();
  }

  Result<void> shape(const TuneShape& shape) {
    weights_.clear();
    const std::int64_t links = std::clamp<std::int64_t>(kChainBytes / (2 * shape.n * shape.k), 2, kMostLinks);
    for (int i = 0; i < links; ++i) {
      DeviceMatrix weight{.rows = shape.n, .cols = shape.k, .gate_up = shape.gate_up};
      TANDEM_ASSIGN(weight.data, random(shape.n * shape.k, 0.03f, "weight"));
      TANDEM_ASSIGN(weight.tiles, weight_tiles(weight));
      weights_.push_back(weight);
    }
    const DeviceMatrix& weight = weights_.front();
    for (const GemmOp op : {GemmOp::Linear, GemmOp::Swiglu}) {
      if (op == GemmOp::Swiglu && !shape.gate_up) continue;
      std::vector<GemmEntry> entries;
      int previous = options_.least_tokens - 1;
      for (const int tokens : kPoints) {
        if (tokens <= previous || tokens > shape.most_tokens) continue;
        TANDEM_TRY(point(op, shape, weight, previous + 1, tokens, entries));
        previous = tokens;
      }
      for (const GemmEntry& entry : entries) {
        // Neighbours of one choice are one entry.
        if (!entries_.empty() && entries_.back().op == entry.op && entries_.back().n == entry.n && entries_.back().k == entry.k &&
            entries_.back().kind == entry.kind && entries_.back().words == entry.words && entries_.back().plan == entry.plan &&
            entries_.back().last_tokens + 1 == entry.first_tokens) {
          const int first = entries_.back().first_tokens;
          entries_.back() = entry;
          entries_.back().first_tokens = first;
        } else {
          entries_.push_back(entry);
        }
      }
    }
    return {};
  }

  [[nodiscard]] std::span<const GemmEntry> entries() const { return entries_; }
  [[nodiscard]] const std::string& limits() const { return limits_; }
  [[nodiscard]] const std::string& heuristics() const { return heuristics_; }

 private:
  Result<bf16*> random(std::int64_t count, float scale, std::string_view what) {
    TANDEM_ASSIGN(void* const memory, backend_.allocate(static_cast<std::size_t>(count) * sizeof(bf16), MemoryUse::Scratch, what));
    TANDEM_TRY(fill_random(backend_.context(), static_cast<bf16*>(memory), count, scale, static_cast<unsigned>(count)));
    return static_cast<bf16*>(memory);
  }

  // What this device reaches: bytes a second of a plain copy, flops a second of a large product.
  Result<void> measure_limits() {
    constexpr std::int64_t kSide = 8192, kCopied = std::int64_t{2} << 30;
    TANDEM_ASSIGN(bf16* const a, random(kCopied / 2, 1.0f, "copied"));
    TANDEM_ASSIGN(bf16* const b, random(kCopied / 2, 1.0f, "copied"));
    const Context& context = backend_.context();
    const double copy_us = timer_.median([&] { return checked(cudaMemcpyAsync(a, b, kCopied, cudaMemcpyDeviceToDevice, context.stream), "copy"); }, 7);
    LtProduct product;
    TANDEM_TRY(product.describe(kSide, kSide, kSide, kSide, kSide));
    TANDEM_ASSIGN(const std::vector<cublasLtMatmulAlgo_t> found, product.heuristics(context, 1));
    if (found.empty() || copy_us == 0) return fail(ErrorKind::Device, "tune: the device's limits cannot be measured");
    TANDEM_TRY(fill_random(context, b, kSide * kSide * 2, 1.0f, 7));
    const double product_us = timer_.median([&] { return product.run(context, b, b + kSide * kSide, a, found.front()); }, 7);
    bytes_a_us_ = 2.0 * kCopied / copy_us;
    flops_a_us_ = 2.0 * kSide * kSide * kSide / product_us;
    limits_ = fmt::format("copy {:.2f} TB/s, product {:.0f} TFLOP/s", bytes_a_us_ / 1e6, flops_a_us_ / 1e6);
    options_.line(limits_);
    return {};
  }

  Result<void> run(const GemmEntry& entry, const DeviceMatrix& weight, int tokens, GemmOp op, bf16* y) {
    const Context& context = backend_.context();
    const View<const bf16, 2> x = dense<const bf16>(x_, tokens, weight.cols);
    const std::int64_t outputs = op == GemmOp::Swiglu ? weight.rows / 2 : weight.rows;
    if (entry.kind == GemmKind::FewTokens) return few_tokens(context, op, x, weight, dense(y, tokens, outputs), entry.plan);
    // The product alone, or followed by the activation, as the backend runs it. The truth's other half is free.
    LtProduct product;
    TANDEM_TRY(product.describe(weight.rows, weight.cols, tokens, weight.cols, weight.rows));
    if (op == GemmOp::Linear) return product.run(context, x_, weight.data, y, library_algorithm(entry));
    TANDEM_TRY(product.run(context, x_, weight.data, y_, library_algorithm(entry)));
    return swiglu(context, dense<const bf16>(y_, tokens, weight.rows), dense(y == y_ ? truth_ : y, tokens, outputs));
  }

  // Microseconds of a product as a step runs it: recorded, one weight after another, a norm before each. Alone, a
  // launch and its empty ends would be a third of what is measured, and what overlaps them would not show.
  Result<double> time(const GemmEntry& entry, int tokens, GemmOp op, int runs) {
    const Context& context = backend_.context();
    TANDEM_TRY(run(entry, weights_.front(), tokens, op, y_));
    TANDEM_TRY(checked(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal), "chain"));
    Result<void> recorded;
    for (const DeviceMatrix& weight : weights_) {
      if (recorded) recorded = link();
      if (recorded) recorded = run(entry, weight, tokens, op, y_);
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t chain = nullptr;
    const auto ended = checked(cudaStreamEndCapture(context.stream, &graph), "chain");
    TANDEM_TRY(recorded);
    TANDEM_TRY(ended);
    const auto made = checked(cudaGraphInstantiate(&chain, graph, 0), "chain");
    cudaGraphDestroy(graph);
    TANDEM_TRY(made);
    const double us = timer_.median([&] { return checked(cudaGraphLaunch(chain, context.stream), "chain"); }, runs);
    cudaGraphExecDestroy(chain);
    return us / static_cast<double>(weights_.size());
  }

  // What stands between two products: a small kernel that may start early.
  Result<void> link() {
    return norm(backend_.context(), {.x = dense<const bf16>(x_, kNormTokens, kNormWidth), .weight = reinterpret_cast<const float*>(norm_weight_),
                                     .y = dense(norm_, kNormTokens, kNormWidth), .eps = 1e-6f});
  }

  Result<std::vector<Candidate>> candidates(GemmOp op, const DeviceMatrix& weight, int tokens) {
    const Context& context = backend_.context();
    std::vector<Candidate> all;
    LtProduct product;
    TANDEM_TRY(product.describe(weight.rows, weight.cols, tokens, weight.cols, weight.rows));
    TANDEM_ASSIGN(std::vector<cublasLtMatmulAlgo_t> found, product.heuristics(context, op == GemmOp::Linear ? kHeuristics : 1));
    if (found.empty()) return fail(ErrorKind::Unsupported, fmt::format("cuBLASLt has no algorithm for {} tokens", tokens));
    if (op == GemmOp::Linear && tokens <= 512) add_splits(product, found);
    for (const cublasLtMatmulAlgo_t& algorithm : found) all.push_back({library_entry(weight.rows, weight.cols, algorithm)});
    if (tokens > kFewTokensMost) return all;
    for (const int groups : {1, 2, 4})
      for (int splits = 1; splits <= 8; ++splits)
        // Half of a multiprocessor, so that the next kernel fetches its weight beside this one, or all of it.
        for (const std::size_t shared : {std::size_t{112} << 10, kFewTokensSharedLimit}) {
          FewTokensPlan plan{groups, splits, 16};
          while (plan.stages > 2 && few_tokens_shared_bytes(plan, tokens) > shared) --plan.stages;
          if (plan.stages < 3 || !check_few_tokens(op, weight.rows, weight.cols, tokens, plan)) continue;
          if (few_tokens_shared_bytes(plan, tokens) > shared) continue;
          const GemmEntry entry{.op = op, .n = weight.rows, .k = weight.cols, .kind = GemmKind::FewTokens, .plan = plan};
          if (std::ranges::any_of(all, [&](const Candidate& c) { return c.entry.kind == entry.kind && c.entry.plan == plan; })) continue;
          all.push_back({entry});
        }
    return all;
  }

  // The library's own algorithms with the inputs cut otherwise; partial sums in the workspace, added in order.
  void add_splits(const LtProduct& product, std::vector<cublasLtMatmulAlgo_t>& found) const {
    const std::size_t given = std::min<std::size_t>(found.size(), 12);
    for (std::size_t i = 0; i < given; ++i)
      for (const std::int32_t splits : {2, 3, 4, 5, 6, 8}) {
        cublasLtMatmulAlgo_t algorithm = found[i];
        const std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        if (cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits) != CUBLAS_STATUS_SUCCESS ||
            cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction) != CUBLAS_STATUS_SUCCESS)
          continue;
        const auto same = [&](const cublasLtMatmulAlgo_t& other) { return std::ranges::equal(other.data, algorithm.data); };
        if (std::ranges::none_of(found, same) && product.check(backend_.context(), algorithm)) found.push_back(algorithm);
      }
  }

  // The best for `last` tokens; it serves from `first` on if it is worth it there too.
  Result<void> point(GemmOp op, const TuneShape& shape, const DeviceMatrix& weight, int first, int last, std::vector<GemmEntry>& entries) {
    TANDEM_ASSIGN(std::vector<Candidate> all, candidates(op, weight, last));
    const GemmEntry heuristic = all.front().entry;
    std::erase_if(all, [&](Candidate& candidate) {
      const Result<double> us = time(candidate.entry, last, op, kFirstRuns);
      candidate.us = us.value_or(0);
      return candidate.us == 0;
    });
    const std::size_t tried = all.size();
    std::ranges::sort(all, {}, &Candidate::us);
    const auto own = std::ranges::find(all, GemmKind::FewTokens, [](const Candidate& c) { return c.entry.kind; });
    const std::string best_own = own == all.end() ? "" : fmt::format(", best {} {:.1f}", describe(own->entry), own->us);
    if (all.size() > kFinalists) all.resize(kFinalists);
    TANDEM_ASSIGN(const double heuristic_us, time(heuristic, last, op, kFinalRuns));
    for (Candidate& candidate : all) {
      TANDEM_ASSIGN(candidate.us, time(candidate.entry, last, op, kFinalRuns));
    }
    std::ranges::sort(all, {}, &Candidate::us);
    const std::int64_t outputs = op == GemmOp::Swiglu ? shape.n / 2 : shape.n;
    const double bytes = 2.0 * (1.0 * shape.n * shape.k + 1.0 * last * (outputs + shape.k)), flops = 2.0 * last * shape.n * shape.k;
    const double limit_us = std::max(bytes / bytes_a_us_, flops / flops_a_us_);
    std::string line = fmt::format("{} {} {} x {}, {} tokens: heuristic {:.1f} us, {:.2f} of the limit", shape.what, name(op), shape.n, shape.k, last,
                                   heuristic_us, limit_us / heuristic_us);
    std::optional<GemmEntry> won;
    for (const Candidate& candidate : all) {
      if (candidate.us > kWorthwhile * heuristic_us) break;
      if (op == GemmOp::Swiglu && candidate.entry.kind == GemmKind::Library) continue;
      TANDEM_ASSIGN(const bool good, verify(candidate.entry, heuristic, weight, last, op));
      if (!good) {
        options_.line(fmt::format("  refused: {} does not repeat its bits or is wrong", describe(candidate.entry)));
        continue;
      }
      won = candidate.entry;
      won->us = candidate.us;
      break;
    }
    if (won) {
      won->limit = limit_us / won->us;
      won->last_tokens = last;
      won->first_tokens = first;
      const int lowest = gemm_bucket(first);
      if (lowest < last) {
        TANDEM_ASSIGN(std::vector<Candidate> there, candidates(op, weight, lowest));
        TANDEM_ASSIGN(const double usual, time(there.front().entry, lowest, op, kFinalRuns));
        const Result<double> mine = time(*won, lowest, op, kFinalRuns);
        int bucket = last;
        while (bucket > 1 && gemm_bucket(bucket - 1) == last) --bucket;
        if (!mine || *mine == 0 || *mine > usual) won->first_tokens = bucket;
      }
      line += fmt::format("; {:.1f} us, {:.2f}: {}, from {} tokens on", won->us, won->limit, describe(*won), won->first_tokens);
      entries.push_back(*won);
    } else {
      heuristics_ += fmt::format("# {} {} {} {}: {:.1f} us, {:.2f} of the limit\n", name(op), shape.n, shape.k, last, heuristic_us, limit_us / heuristic_us);
    }
    options_.line(line + fmt::format(" ({} tried{})", tried, best_own));
    return {};
  }

  // Equal bits twice, and within rounding of what the library's favourite gives.
  Result<bool> verify(const GemmEntry& entry, const GemmEntry& heuristic, const DeviceMatrix& weight, int tokens, GemmOp op) {
    const Context& context = backend_.context();
    const std::int64_t count = tokens * (op == GemmOp::Swiglu ? weight.rows / 2 : weight.rows);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(bf16);
    TANDEM_TRY(run(heuristic, weight, tokens, op, truth_));
    TANDEM_TRY(backend_.fill_bytes(y_, 0xff, bytes));
    TANDEM_TRY(run(entry, weight, tokens, op, y_));
    TANDEM_ASSIGN(const Difference off, compare(context, truth_, y_, count, scratch_));
    TANDEM_TRY(checked(cudaMemcpyAsync(truth_, y_, bytes, cudaMemcpyDeviceToDevice, context.stream), "verify"));
    TANDEM_TRY(backend_.fill_bytes(y_, 0xff, bytes));
    TANDEM_TRY(run(entry, weight, tokens, op, y_));
    TANDEM_ASSIGN(const Difference again, compare(context, truth_, y_, count, scratch_));
    // bf16 keeps 8 bits: one rounding apart at the largest value, and twice that with the activation's.
    return off.largest <= off.magnitude / 64 && again.largest == 0;
  }

  static std::string describe(const GemmEntry& entry) {
    if (entry.kind == GemmKind::FewTokens) return fmt::format("few-tokens {} {} {}", entry.plan.groups, entry.plan.splits, entry.plan.stages);
    return "cublaslt " + entry.about;
  }

  const TuneOptions& options_;
  CudaBackend& backend_;
  ColdTimer timer_;
  double bytes_a_us_ = 0, flops_a_us_ = 0;
  std::string limits_, heuristics_;
  std::vector<GemmEntry> entries_;
  std::vector<DeviceMatrix> weights_;  // of the shape in hand
  bf16 *x_ = nullptr, *y_ = nullptr, *truth_ = nullptr, *norm_ = nullptr, *norm_weight_ = nullptr;
  void* scratch_ = nullptr;
};

}  // namespace

Result<std::string> tune_gemms(const TuneOptions& options) {
  TANDEM_ASSIGN(const std::unique_ptr<CudaBackend> backend, CudaBackend::open(options.ordinal));
  TANDEM_ASSIGN(const DeviceInfo device, backend->device());
  Tuner tuner(options, *backend);
  TANDEM_TRY(tuner.prepare());
  for (const TuneShape& shape : options.shapes) TANDEM_TRY(tuner.shape(shape));
  return format_gemm_table(device.name, cublasLtGetVersion(), tuner.entries()) + "\n# Limits: " + tuner.limits() +
         ". Where cuBLASLt's first heuristic is as good there is no entry:\n" + tuner.heuristics();
}

}  // namespace tandem::ops::cuda
