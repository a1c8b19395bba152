#include "ops/cpu/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/thread_team.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/operators.h"
#include "ops/cpu/packed_weight.h"
#include "ops/host_backend.h"

namespace tandem::ops {
namespace {

using cpu::LinearInput;
using cpu::LinearOutput;
using cpu::PackedWeight;

// Tokens that a linear operator takes at a time: so many that their inputs leave room for a block of weights
// in the second-level cache (2 MiB on the machines with AMX), and a multiple of every kernel's group.
constexpr std::int64_t kLinearInputBytes = 1400 * 1024;
constexpr std::int64_t kMostLinearTokens = 512;
std::int64_t linear_tokens(std::int64_t pairs) {
  return std::clamp<std::int64_t>(kLinearInputBytes / (pairs * 4) / 96 * 96, 96, kMostLinearTokens);
}

// A weight's blocks as the items of a team's loop: long stretches to stream first, then short ones, so that
// the threads end together. With stretches of one length they miss each other by half of one: at one token
// that was a tenth of the products' time on two cores.
class Stretches {
 public:
  Stretches(const PackedWeight& weight, std::int64_t threads) : blocks_(weight.block_count()) {
    constexpr std::int64_t kShortBytes = 256 * 1024;
    constexpr std::int64_t kGroup = 8;  // blocks that a kernel streams at once
    const std::int64_t block_bytes = weight.block_elements() * static_cast<std::int64_t>(sizeof(bf16));
    long_ = std::max<std::int64_t>(1, blocks_ / (threads * 4));
    if (long_ > kGroup) long_ = std::max<std::int64_t>(kGroup, blocks_ / (threads * 8) / kGroup * kGroup);
    short_ = std::clamp<std::int64_t>(kShortBytes / block_bytes, 1, std::max<std::int64_t>(1, long_ / 2));
    longs_ = std::max<std::int64_t>(0, blocks_ * 3 / 4 / long_);
  }
  [[nodiscard]] std::int64_t count() const { return longs_ + (blocks_ - longs_ * long_ + short_ - 1) / short_; }

  struct Stretch {
    std::int64_t first, blocks;
  };
  Stretch operator[](std::int64_t item) const {
    if (item < longs_) return {item * long_, long_};
    const std::int64_t first = longs_ * long_ + (item - longs_) * short_;
    return {first, std::min(short_, blocks_ - first)};
  }

 private:
  std::int64_t blocks_, long_, short_, longs_;
};

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : HostBackend(name_of(options)),
        isa_(isa_of(options)),
        team_(threads_of(options), options.all_threads),
        kernels_(cpu::kernels(isa_)),
        linear_(cpu::linear_kernel(isa_)) {}

  // A copy in packed order; the table itself stays where it is mapped and is read a row at a time.
  Result<LinearWeight> tie_head(const EmbeddingWeight& embedding) override {
    const HostMatrix table{.data = embedding.table,
                           .rows = embedding.vocab,
                           .cols = embedding.hidden,
                           .row_stride = embedding.hidden};
    return pack({&table, 1}, Stacked::Plain, "head, tied to the embedding");
  }
  Result<std::vector<bf16>> read_back(const LinearWeight& weight) override {
    return cpu::unpack(*static_cast<const PackedWeight*>(weight.packed));
  }

  Result<void> reserve(const StepLimits& limits) override {
    TANDEM_TRY(HostBackend::reserve(limits));
    reserved_ = true;
    const auto tokens = static_cast<std::int64_t>(limits.max_tokens);
    TANDEM_TRY(make_room(rotations_, 2 * tokens * cpu::kRotaryHalf, "rotary angles"));
    TANDEM_TRY(make_room(worker_scratch_, team_.size() * cpu::kWorkerScratch, "scratch of the threads"));
    TANDEM_TRY(make_room(sampler_logits_, limits.vocab, "sampler row"));
    TANDEM_TRY(make_room(candidates_, limits.vocab, "sampler candidates"));
    return make_linear_scratch();
  }

  Result<void> begin_step(const StepView& view) override {
    rotary_theta_ = 0.0f;
    return HostBackend::begin_step(view);
  }

  Result<void> embed(const EmbedArgs& args) override {
    for (const StepRow& row : step().rows()) {
      for (int t = row.token_begin; t < row.token_begin + row.tokens; ++t) {
        const bf16* from = args.weight.table + input_token(row, t) * args.weight.hidden;
        std::copy_n(from, args.weight.hidden, args.x.row(t));
      }
    }
    return {};
  }

  Result<void> norm(const NormArgs& args) override {
    for_tokens(args.x.size(0), [&](std::int64_t t) {
      kernels_.norm(args.x.row(t), args.weight, args.eps, args.x.size(1), args.y.row(t));
    });
    return {};
  }

  Result<void> reduce_add_norm(const ReduceAddNormArgs& args) override {
    const std::int64_t tokens = args.partial.size(0);
    const std::int64_t hidden = args.partial.size(1);
    if (args.comm != nullptr && args.comm->world() > 1) {
      TANDEM_TRY(args.comm->all_reduce(args.partial.data, tokens * hidden));
    }
    for_tokens(tokens, [&](std::int64_t t) {
      kernels_.add(args.residual.row(t), args.partial.row(t), hidden);
      kernels_.norm(args.residual.row(t), args.weight, args.eps, hidden, args.y.row(t));
    });
    return {};
  }

  Result<void> linear(const LinearArgs& args) override {
    run_linear(args.x, packed(args.weight), LinearOutput::Bf16, args.y);
    return {};
  }
  Result<void> linear_swiglu(const LinearSwigluArgs& args) override {
    run_linear(args.x, packed(args.weight), LinearOutput::Swiglu, args.y);
    return {};
  }
  Result<void> head(const HeadArgs& args) override {
    const std::int64_t hidden = args.weight.cols;
    for (std::int64_t begin = 0; begin < args.logits.size(0); begin += kMostLinearTokens) {
      const std::int64_t count = std::min(kMostLinearTokens, args.logits.size(0) - begin);
      for (std::int64_t r = 0; r < count; ++r) {
        const LogitRow& row = step().logit_rows()[static_cast<std::size_t>(args.first + begin + r)];
        std::copy_n(args.hidden.row(row.token), hidden, gathered_.data + r * hidden);
      }
      const View<float, 2> logits{args.logits.row(begin), {count, args.logits.size(1)}, args.logits.stride};
      run_linear(View<const bf16, 2>(dense(gathered_.data, count, hidden)), packed(args.weight),
                 LinearOutput::RoundedFloat, logits);
    }
    return {};
  }

  Result<void> attention_prepare(const AttentionPrepareArgs& args) override {
    const std::int64_t table = std::int64_t{step().limits().max_tokens} * cpu::kRotaryHalf;
    if (rotary_theta_ != args.rope_theta) {
      cpu::rotations(shop(), args.rope_theta, rotations_.data, rotations_.data + table);
      rotary_theta_ = args.rope_theta;
    }
    cpu::attention_prepare(shop(), args, {.cosine = rotations_.data, .sine = rotations_.data + table});
    return {};
  }
  Result<void> attention(const AttentionArgs& args) override {
    cpu::attention(shop(), args);
    return {};
  }
  Result<void> delta_prepare(const DeltaPrepareArgs& args) override {
    cpu::delta_prepare(shop(), args);
    return {};
  }
  Result<void> delta_rule(const DeltaRuleArgs& args) override {
    cpu::delta_rule(shop(), args);
    return {};
  }
  Result<void> gated_norm(const GatedNormArgs& args) override {
    cpu::gated_norm(shop(), args);
    return {};
  }
  Result<void> delta_mixer(const DeltaMixerArgs& args) override {
    cpu::delta_mixer(shop(), args);
    return {};
  }
  Result<void> sample(const SampleArgs& args) override {
    cpu::sample(shop(), sampler(), args, {.logits = sampler_logits_.data, .candidates = candidates_.data},
                choices());
    return {};
  }

 private:
  template <class T>
  struct Room {
    T* data = nullptr;
    std::int64_t count = 0;
  };

  cpu::Shop shop() {
    return {.team = team_, .kernels = kernels_, .step = step(), .scratch = worker_scratch_.data};
  }
  static CpuIsa isa_of(const CpuOptions& options) { return std::min(options.isa, detected_cpu_isa()); }
  static int threads_of(const CpuOptions& options) { return std::max(options.threads, 1); }
  static std::string name_of(const CpuOptions& options) {
    const int threads = threads_of(options);
    return fmt::format("cpu ({}, {} thread{})", name(isa_of(options)), threads, threads == 1 ? "" : "s");
  }
  static const PackedWeight& packed(const LinearWeight& weight) {
    return *static_cast<const PackedWeight*>(weight.packed);
  }

  template <class T>
  Result<void> make_room(Room<T>& room, std::int64_t count, std::string_view what) {
    if (room.count >= count) return {};
    TANDEM_ASSIGN(void* data,
                  allocate(static_cast<std::size_t>(count) * sizeof(T), MemoryUse::Scratch, what));
    room = {static_cast<T*>(data), count};
    return {};
  }

  // The widest input decides; weights may come before or after reserve.
  Result<void> make_linear_scratch() {
    if (!reserved_) return {};
    const std::int64_t tokens =
        (std::min<std::int64_t>(kMostLinearTokens, step().limits().max_tokens) + 15) / 16 * 16;
    TANDEM_TRY(make_room(gathered_, tokens * widest_, "gathered hidden vectors"));
    if (linear_.input == LinearInput::FloatRows)
      return make_room(floats_, tokens * widest_, "linear inputs as floats");
    return make_room(inputs_, tokens * widest_, "linear inputs");
  }

  Result<LinearWeight> pack(std::span<const HostMatrix> parts, Stacked stacked,
                            std::string_view what) override {
    auto weight = std::make_unique<PackedWeight>();
    weight->gate_up = stacked == Stacked::GateUp;
    weight->cols = parts.empty() ? 0 : parts.front().cols;
    for (const HostMatrix& part : parts) weight->rows += part.rows;
    TANDEM_ASSIGN(void* memory, allocate(weight->bytes(), MemoryUse::Weights, what));
    weight->blocks = static_cast<bf16*>(memory);
    cpu::pack(*weight, parts, team_);
    widest_ = std::max(widest_, 2 * weight->pairs());
    TANDEM_TRY(make_linear_scratch());
    weights_.push_back(std::move(weight));
    const PackedWeight& kept = *weights_.back();
    return LinearWeight{.packed = &kept, .rows = kept.rows, .cols = kept.cols};
  }

  template <class Work>
  void for_tokens(std::int64_t tokens, const Work& work) {
    constexpr std::int64_t kTokensAnItem = 8;  // a few rows are done before another thread is awake
    team_.run((tokens + kTokensAnItem - 1) / kTokensAnItem, [&](std::int64_t item, int) {
      const std::int64_t end = std::min((item + 1) * kTokensAnItem, tokens);
      for (std::int64_t t = item * kTokensAnItem; t < end; ++t) work(t);
    });
  }

  template <class Y>
  void run_linear(View<const bf16, 2> x, const PackedWeight& weight, LinearOutput output, View<Y, 2> y) {
    const std::int64_t tokens = x.size(0);
    const std::int64_t width = output == LinearOutput::Swiglu ? cpu::kSwigluChannels : cpu::kBlockOutputs;
    const std::int64_t outputs = output == LinearOutput::Swiglu ? weight.rows / 2 : weight.rows;
    const std::int64_t at_a_time = linear_tokens(weight.pairs());
    for (std::int64_t begin = 0; begin < tokens; begin += at_a_time) {
      cpu::LinearTask whole{.tokens = static_cast<int>(std::min(at_a_time, tokens - begin)),
                            .pairs = weight.pairs(),
                            .output = output,
                            .y_stride = y.stride[0]};
      prepare_inputs(x, begin, weight, whole);
      const Stretches stretches(weight, team_.size());
      team_.run(stretches.count(), [&](std::int64_t item, int) {
        const auto [first, blocks] = stretches[item];
        cpu::LinearTask task = whole;
        task.blocks = weight.blocks + first * weight.block_elements();
        task.block_count = static_cast<int>(blocks);
        task.y = y.row(begin) + first * width;
        task.outputs = outputs - first * width;
        linear_.run(task);
      });
    }
  }

  // Inputs as the kernel wants them.
  void prepare_inputs(View<const bf16, 2> x, std::int64_t begin, const PackedWeight& weight,
                      cpu::LinearTask& task) {
    const std::int64_t depth = 2 * weight.pairs();
    if (linear_.input == LinearInput::Bf16Tiles) {
      task.x = inputs_.data;
      task.x_stride = depth * cpu::kTileTokens;
      for_tokens(task.tokens, [&](std::int64_t t) {
        cpu::to_tile_rows(x.row(begin + t), weight.cols, inputs_.data + t / cpu::kTileTokens * task.x_stride,
                          static_cast<int>(t % cpu::kTileTokens));
      });
    } else if (linear_.input == LinearInput::FloatRows) {
      task.x = floats_.data;
      task.x_stride = depth;
      for_tokens(task.tokens, [&](std::int64_t t) {
        float* to = floats_.data + t * depth;
        kernels_.to_floats(x.row(begin + t), weight.cols, to);
        std::fill(to + weight.cols, to + depth, 0.0f);
      });
    } else if (depth != weight.cols) {
      task.x = inputs_.data;
      task.x_stride = depth;
      for_tokens(task.tokens, [&](std::int64_t t) {
        bf16* to = std::copy_n(x.row(begin + t), weight.cols, inputs_.data + t * depth);
        std::fill(to, inputs_.data + (t + 1) * depth, bf16{});
      });
    } else {
      task.x = x.row(begin);
      task.x_stride = x.stride[0];
    }
  }

  const CpuIsa isa_;
  ThreadTeam team_;
  const cpu::Kernels& kernels_;
  const cpu::LinearKernel linear_;
  std::vector<std::unique_ptr<PackedWeight>> weights_;
  bool reserved_ = false;
  std::int64_t widest_ = 0;  // inputs of any weight, padded
  Room<bf16> gathered_, inputs_;
  Room<float> floats_, rotations_, worker_scratch_, sampler_logits_;
  Room<TokenId> candidates_;
  float rotary_theta_ = 0.0f;  // of what rotations_ holds for this step; 0: nothing yet
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace tandem::ops
