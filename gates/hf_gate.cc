#include "gates/hf_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "memory/page_table.h"
#include "memory/pools.h"
#include "model/checkpoint.h"
#include "model/forward.h"
#include "model/geometry.h"

namespace tandem::gates {
namespace {

constexpr int kScoredIds = 8;
using Scored = std::vector<std::vector<ops::TokenChoice>>;

// The truth's logprob of an id; one outside the stored ones is scored against the last.
double truth_of(const Truth& truth, TokenId id) {
  const auto found = std::find(truth.ids.begin(), truth.ids.end(), id);
  return found == truth.ids.end() ? truth.logprobs.back()
                                  : truth.logprobs[static_cast<std::size_t>(found - truth.ids.begin())];
}

// Linear between neighbours, as NumPy's.
double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

// One rank with everything that a replay needs, on that rank's thread.
class Replayer {
 public:
  static Result<std::unique_ptr<Replayer>> make(const model::Checkpoint& checkpoint, const GateFixture& fixture,
                                                RankId rank, const BackendFactory& make_backend, comm::Group& group,
                                                const GateOptions& options) {
    const model::Geometry& geometry = checkpoint.geometry();
    auto made = std::unique_ptr<Replayer>(new Replayer(options));
    TANDEM_ASSIGN(const model::Partition partition,
                  model::Partition::make(geometry, rank, options.world, options.linear_attention));
    TANDEM_ASSIGN(made->backend_, make_backend(rank));
    TANDEM_ASSIGN(made->comm_, group.join(rank, nullptr, made->backend_->stream()));
    std::size_t longest = 1;
    for (const GatePrompt& prompt : fixture.prompts) longest = std::max(longest, prompt.prompt.size() + prompt.forced.size());
    const int pages = static_cast<int>(memory::pages_for(static_cast<std::int64_t>(longest)));
    const ops::StepLimits limits{.max_tokens = std::max(options.chunk_tokens, 2 * options.short_chunk_tokens),
                                 .max_rows = 1,
                                 .max_context = pages * ops::kPageTokens,
                                 .max_logit_rows = 1,
                                 .slots = 1,
                                 .pages = pages,
                                 .vocab = geometry.vocab};
    TANDEM_ASSIGN(model::Weights weights,
                  model::Weights::load(*made->backend_, checkpoint, partition, options.rounding));
    TANDEM_TRY(made->backend_->reserve(limits));
    TANDEM_ASSIGN(model::Forward forward, model::Forward::make(*made->backend_, *made->comm_, geometry, partition,
                                                               std::move(weights), {.limits = limits}));
    made->forward_ = std::make_unique<model::Forward>(std::move(forward));
    TANDEM_ASSIGN(memory::Pools pools, memory::Pools::make(*made->backend_, geometry, partition, pages, 1));
    made->pools_ = std::make_unique<memory::Pools>(std::move(pools));
    made->forward_->bind(made->pools_->views());
    for (int page = 0; page < pages; ++page) made->pages_.push_back(PageId{page});
    return made;
  }

  // The choices of all prompts; empty on ranks that do not score.
  Result<Scored> replay(const GateFixture& fixture) {
    Scored all;
    for (const GatePrompt& prompt : fixture.prompts) {
      // Nothing of the prompt before may show.
      TANDEM_TRY(pools_->fill_with_nan(SlotId{0}));
      for (const PageId page : pages_) TANDEM_TRY(pools_->fill_with_nan(page));
      all.emplace_back();
      TANDEM_TRY(run_prompt(prompt, all.back()));
    }
    return all;
  }

 private:
  explicit Replayer(const GateOptions& options) : options_(options) {}

  Result<void> run_prompt(const GatePrompt& prompt, std::vector<ops::TokenChoice>& scored) {
    const int length = static_cast<int>(prompt.prompt.size());
    const int chunk = length > 2 * options_.chunk_tokens ? options_.chunk_tokens : options_.short_chunk_tokens;
    for (int begin = 0; begin < length; begin += chunk) {
      const int tokens = std::min(chunk, length - begin);
      const bool last = begin + tokens == length;
      TANDEM_TRY(run_row(std::span(prompt.prompt).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(tokens)),
                         begin, ops::RowKind::Prefill, last, scored));
    }
    for (std::size_t i = 0; i < prompt.forced.size(); ++i) {
      TANDEM_TRY(run_row(std::span(prompt.forced).subspan(i, 1), length + static_cast<int>(i), ops::RowKind::Decode, true,
                         scored));
    }
    return {};
  }

  Result<void> run_row(std::span<const TokenId> tokens, int base_pos, ops::RowKind kind, bool scores,
                       std::vector<ops::TokenChoice>& scored) {
    const int count = static_cast<int>(tokens.size());
    const ops::StepRow row{.kind = kind,
                           .tokens = count,
                           .base_pos = base_pos,
                           .slot = SlotId{0},
                           .page_count = static_cast<std::int32_t>(pages_.size()),
                           .sampling = base_pos == 0 ? &greedy_ : nullptr};
    const ops::LogitRow logit_row{.token = count - 1,
                                  .slot = SlotId{0},
                                  .position = base_pos + count,
                                  .target = 0,
                                  .top_logprobs = kScoredIds};
    TANDEM_ASSIGN(const std::uint64_t ticket,
                  forward_->run({.tokens = tokens,
                                 .rows = std::span(&row, 1),
                                 .pages = pages_,
                                 .logit_rows = std::span(&logit_row, scores ? 1u : 0u),
                                 .decode_rows = kind == ops::RowKind::Decode ? 1 : 0}));
    TANDEM_ASSIGN(const std::span<const ops::TokenChoice> choices, backend_->wait(ticket));
    scored.insert(scored.end(), choices.begin(), choices.end());
    return {};
  }

  const GateOptions options_;
  ops::SamplingParams greedy_{.temperature = 0.0f};
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<memory::Pools> pools_;
  std::vector<PageId> pages_;
};

bool same_bits(const Scored& a, const Scored& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t p = 0; p < a.size(); ++p) {
    if (a[p].size() != b[p].size()) return false;
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      const ops::TokenChoice &x = a[p][i], &y = b[p][i];
      if (x.logprob != y.logprob || x.top_ids != y.top_ids || x.top_logprobs != y.top_logprobs) return false;
    }
  }
  return true;
}

std::string line(std::string_view what, double figure, double floor, double most) {
  return fmt::format("  {:<7}{:9.4f}  floor {:.4f}  ratio {:5.3f}  passes up to {:.4f}\n", what, figure, floor,
                     floor > 0.0 ? figure / floor : 0.0, most);
}

void judge(const GateFixture& fixture, GateResult& result) {
  const GateFigures &f = result.figures, &floor = fixture.floor;
  const double mean = 1.15 * floor.mean, p99 = 1.3 * floor.p99, regret = std::max(0.05, 1.3 * floor.regret);
  result.passed = f.mean <= mean && f.p99 <= p99 && f.regret <= regret && result.repeatable;
  result.table = fmt::format("{}: {}{}\n", fixture.name, result.passed ? "passed" : "FAILED",
                             result.repeatable ? "" : ", not repeatable");
  result.table += line("mean", f.mean, floor.mean, mean) + line("p99", f.p99, floor.p99, p99) +
                  line("max", f.max, floor.max, std::numeric_limits<double>::infinity()) +
                  line("regret", f.regret, floor.regret, regret);
}

}  // namespace

GateFigures score(const GateFixture& fixture, const Scored& scored) {
  std::vector<double> distances;
  GateFigures figures;
  for (std::size_t p = 0; p < fixture.prompts.size(); ++p) {
    for (std::size_t i = 0; i < fixture.prompts[p].truth.size(); ++i) {
      const Truth& truth = fixture.prompts[p].truth[i];
      const ops::TokenChoice& choice = scored.at(p).at(i);
      if (choice.non_finite != 0) {
        constexpr double kFar = std::numeric_limits<double>::infinity();
        return {kFar, kFar, kFar, kFar};
      }
      for (std::size_t k = 0; k < kScoredIds; ++k) {
        distances.push_back(std::abs(choice.top_logprobs[k] - truth_of(truth, choice.top_ids[k])));
      }
      figures.regret = std::max(figures.regret, truth.logprobs.front() - truth_of(truth, choice.top_ids[0]));
    }
  }
  for (const double distance : distances) figures.mean += distance / static_cast<double>(distances.size());
  figures.p99 = quantile(distances, 0.99);
  figures.max = quantile(std::move(distances), 1.0);
  return figures;
}

Result<GateResult> run_hf_gate(const std::filesystem::path& model, const GateFixture& fixture,
                               const BackendFactory& backend, comm::Group& group, const GateOptions& options) {
  TANDEM_ASSIGN(const model::Geometry geometry, model::read_geometry(model));
  TANDEM_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(model, geometry));
  Scored first, second;
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(options.world));
  const auto run_rank = [&](int rank) -> Result<void> {
    TANDEM_ASSIGN(const std::unique_ptr<Replayer> replayer,
                  Replayer::make(checkpoint, fixture, RankId{rank}, backend, group, options));
    TANDEM_ASSIGN(Scored once, replayer->replay(fixture));
    Scored twice;
    if (options.replay_twice) {
      TANDEM_ASSIGN(twice, replayer->replay(fixture));
    }
    if (rank == 0) {
      first = std::move(once);
      second = std::move(twice);
    }
    return {};
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < options.world; ++rank) {
    ranks.emplace_back([&, rank] {
      if (auto done = run_rank(rank); !done) {
        errors[static_cast<std::size_t>(rank)] = done.error();
        group.abort(done.error());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  // One rank's failure poisons the others, which repeat it: show the cause.
  const std::optional<Error>* cause = nullptr;
  for (const auto& error : errors) {
    if (error && (cause == nullptr || (*cause)->kind == ErrorKind::Poisoned)) cause = &error;
  }
  if (cause != nullptr) return fail(**cause);

  GateResult result{.figures = score(fixture, first), .repeatable = !options.replay_twice || same_bits(first, second)};
  judge(fixture, result);
  return result;
}

}  // namespace tandem::gates
