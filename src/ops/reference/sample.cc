#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/philox.h"
#include "ops/reference/operators.h"

namespace tandem::ops::reference {
namespace {

// The ids [0, count) by falling logit, equal ones by rising id.
std::vector<TokenId> by_rank(const float* logits, std::int64_t count) {
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(),
            [&](TokenId a, TokenId b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  return ids;
}

// Logprobs of `choice.id` and of the best ids, in the softmax over all `count` logits.
void report_logprobs(const float* logits, std::int64_t count, int top, TokenChoice& choice) {
  const float largest = *std::max_element(logits, logits + count);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += exact::weight(logits[i] - largest);
  const float log_sum = exact::log_of_weights(sum);
  const auto logprob = [&](TokenId id) { return logits[id] - largest - log_sum; };
  choice.logprob = logprob(choice.id);
  if (top == 0) return;
  for (const TokenId id : by_rank(logits, count)) {
    if (choice.top_count == top || logits[id] == -INFINITY) return;
    choice.top_ids[static_cast<std::size_t>(choice.top_count)] = id;
    choice.top_logprobs[static_cast<std::size_t>(choice.top_count)] = logprob(id);
    ++choice.top_count;
  }
}

// Temperature, then minus infinity for every id that top-k, top-p or min-p excludes.
void restrict(float* logits, std::int64_t count, const SamplingParams& p) {
  for (std::int64_t i = 0; i < count; ++i) logits[i] /= p.temperature;
  const std::vector<TokenId> ids = by_rank(logits, count);
  const float largest = logits[ids.front()];
  std::size_t kept = ids.size();
  if (p.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(p.top_k));

  if (p.top_p < 1.0f) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kept; ++i) sum += exact::weight(logits[ids[i]] - largest);
    const std::uint64_t needed = exact::top_p_weight(p.top_p, sum);
    std::uint64_t before = 0;
    std::size_t i = 0;
    for (; i < kept && before < needed; ++i) before += exact::weight(logits[ids[i]] - largest);
    kept = i;
  }
  if (p.min_p > 0.0f) {
    std::size_t i = 1;
    while (i < kept && exact::exp_negative(logits[ids[i]] - largest) >= p.min_p) ++i;
    kept = i;
  }
  for (std::size_t i = kept; i < ids.size(); ++i) logits[ids[i]] = -INFINITY;
}

TokenId largest_id(const float* scores, std::int64_t count) {
  return static_cast<TokenId>(std::max_element(scores, scores + count) - scores);  // the first of equals
}

void choose(const LogitRow& row, float* logits, std::int64_t count, int vocab, LogprobsMode mode,
            SamplerState& sampler, TokenChoice& choice) {
  choice = TokenChoice{};
  const bool scored = row.target >= 0;
  choice.id = scored ? row.target : 0;
  if (!std::all_of(logits, logits + count, [](float l) { return std::isfinite(l); })) {
    choice.non_finite = 1;
    return;
  }
  const bool raw = mode == LogprobsMode::Raw || scored;
  const bool wants_logprobs = row.top_logprobs >= 0;
  std::vector<float> scores(logits, logits + count);
  if (!scored) {
    const SamplingParams& p = sampler.params(row.slot);
    sampler.adjust(row.slot, row.step_index, scores.data(), vocab);
    std::fill(scores.begin() + std::min<std::int64_t>(vocab, count), scores.end(), -INFINITY);
    if (*std::max_element(scores.begin(), scores.end()) == -INFINITY) {
      choice.non_finite = 1;
      return;
    }
    if (is_greedy(p)) {
      choice.id = largest_id(scores.data(), count);
      if (!raw && wants_logprobs) report_logprobs(scores.data(), count, row.top_logprobs, choice);
    } else {
      restrict(scores.data(), count, p);
      std::vector<float> noisy(scores);
      for (std::int64_t i = 0; i < count; ++i) {
        if (scores[static_cast<std::size_t>(i)] != -INFINITY) {
          noisy[static_cast<std::size_t>(i)] += gumbel_noise(p.seed, row.position, static_cast<TokenId>(i));
        }
      }
      choice.id = largest_id(noisy.data(), count);
      if (!raw && wants_logprobs) report_logprobs(scores.data(), count, row.top_logprobs, choice);
    }
  }
  if (raw && wants_logprobs) report_logprobs(logits, count, row.top_logprobs, choice);
}

}  // namespace

void sample(const HostStep& step, SamplerState& sampler, const SampleArgs& args, TokenChoice* choices) {
  const std::int64_t count = args.logits.size(1);
  for (std::int64_t r = 0; r < args.logits.size(0); ++r) {
    const std::int64_t i = args.first + r;
    choose(step.logit_rows()[static_cast<std::size_t>(i)], args.logits.row(r), count, args.vocab, args.mode,
           sampler, choices[i]);
    args.ids[i] = choices[i].id;
  }
}

}  // namespace tandem::ops::reference
