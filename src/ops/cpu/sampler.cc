#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/operators.h"
#include "ops/philox.h"

// The reference sampler's choices, bit for bit, without sorting the vocabulary: passes over the logits are
// vectorised, and only candidates that can still be chosen are looked at one by one.

namespace tandem::ops::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Row {
  const Kernels& kernels;
  float* logits;
  std::int64_t count;   // of the softmax
  std::int64_t vocab;   // ids that have a token
  TokenId* candidates;  // room for `count` ids

  // Falling logit, then rising id.
  [[nodiscard]] bool before(TokenId a, TokenId b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
  // The first `wanted` ids of the whole row in that order, among the first n; returns how many there are.
  std::int64_t best(std::int64_t wanted, std::int64_t n) const;
};

std::int64_t Row::best(std::int64_t wanted, std::int64_t n) const {
  wanted = std::min(wanted, n);
  if (wanted == 0) return 0;
  // A heap of the best so far with the worst on top; most vectors hold nothing better than the worst.
  const auto order = [this](TokenId a, TokenId b) { return before(a, b); };
  TokenId* heap = candidates;
  for (std::int64_t i = 0; i < wanted; ++i) heap[i] = static_cast<TokenId>(i);
  std::make_heap(heap, heap + wanted, order);
  constexpr std::int64_t kStretch = 256;
  TokenId found[kStretch];
  for (std::int64_t begin = wanted; begin < n; begin += kStretch) {
    const std::int64_t length = std::min(kStretch, n - begin);
    const std::int64_t some = kernels.collect(logits + begin, length, logits[heap[0]], found, kStretch);
    for (std::int64_t i = 0; i < some; ++i) {
      const auto id = static_cast<TokenId>(begin + found[i]);
      if (!before(id, heap[0])) continue;
      std::pop_heap(heap, heap + wanted, order);
      heap[wanted - 1] = id;
      std::push_heap(heap, heap + wanted, order);
    }
  }
  std::sort_heap(heap, heap + wanted, order);
  return wanted;
}

// logprob = logit - largest - log_sum of `id` and of the first `top` ids in row.candidates[0..n).
void report(const Row& row, float largest, std::uint64_t sum, TokenId id, std::int64_t top,
            TokenChoice& choice) {
  const float log_sum = exact::log_of_weights(sum);
  choice.logprob = row.logits[id] - largest - log_sum;
  for (std::int64_t i = 0; i < top; ++i) {
    const TokenId alternative = row.candidates[i];
    if (row.logits[alternative] == kMinusInfinity) break;
    const auto at = static_cast<std::size_t>(choice.top_count++);
    choice.top_ids[at] = alternative;
    choice.top_logprobs[at] = row.logits[alternative] - largest - log_sum;
  }
}

// The same over the softmax of the row's first n logits.
void report_all(const Row& row, float largest, std::int64_t n, TokenId id, int top, TokenChoice& choice) {
  const std::uint64_t sum = row.kernels.sum_weights(row.logits, n, largest);
  report(row, largest, sum, id, row.best(top, n), choice);
}

std::uint64_t weight_of(const Row& row, const TokenId* ids, std::int64_t n, float largest) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += exact::weight(row.logits[ids[i]] - largest);
  return sum;
}

// How many of the n candidates, best first, top-p keeps: those before which less than `needed` lies. Brings
// them to the front, in no order, by splitting around pivots as quickselect does.
std::int64_t keep_weight(const Row& row, std::int64_t n, std::uint64_t needed, float largest) {
  const auto order = [&row](TokenId a, TokenId b) { return row.before(a, b); };
  TokenId* ids = row.candidates;
  std::int64_t begin = 0, end = n;  // the border lies in here; all before `begin` are kept and weigh `sum`
  std::uint64_t sum = 0;
  constexpr std::int64_t kFew = 64;
  while (end - begin > kFew) {
    const std::int64_t middle = begin + (end - begin) / 2;
    std::nth_element(ids + begin, ids + middle, ids + end, order);
    const std::uint64_t upper = weight_of(row, ids + begin, middle - begin, largest);
    if (sum + upper >= needed) {
      end = middle;
    } else {
      sum += upper;
      begin = middle;
    }
  }
  std::sort(ids + begin, ids + end, order);
  for (; begin < end && sum < needed; ++begin) sum += exact::weight(row.logits[ids[begin]] - largest);
  return begin;
}

// Leaves the ids that top-k, top-p and min-p keep at the front of row.candidates; returns how many.
// `largest`: of the logits, which have been divided by the temperature.
std::int64_t keep(const Row& row, const SamplingParams& p, float largest) {
  const auto collect_from = [&](float threshold) {
    return row.kernels.collect(row.logits, row.vocab, threshold, row.candidates, row.count);
  };
  std::int64_t kept = 0;
  if (p.top_k > 0 && p.top_k < row.vocab) {
    kept = row.best(p.top_k, row.vocab);
    if (p.top_p < 1.0f) {
      const std::uint64_t needed =
          exact::top_p_weight(p.top_p, weight_of(row, row.candidates, kept, largest));
      kept = keep_weight(row, kept, needed, largest);
    }
  } else if (p.top_p < 1.0f) {
    const std::uint64_t needed =
        exact::top_p_weight(p.top_p, row.kernels.sum_weights(row.logits, row.vocab, largest));
    // Ever wider bands below the largest until they weigh enough.
    for (float band = 4.0f;; band *= 2.0f) {
      kept = collect_from(band > 100.0f ? kMinusInfinity : largest - band);
      if (band > 100.0f || weight_of(row, row.candidates, kept, largest) >= needed) break;
    }
    kept = keep_weight(row, kept, needed, largest);
  } else {
    // A little below what min_p says; the exact test follows.
    kept = collect_from(largest + std::log(p.min_p) - 1e-3f);
  }
  if (p.min_p > 0.0f) {
    const auto likely = [&](TokenId id) { return exact::exp_negative(row.logits[id] - largest) >= p.min_p; };
    kept = std::partition(row.candidates, row.candidates + kept, likely) - row.candidates;
  }
  return kept;
}

// Among the first `kept` candidates.
TokenId sample_kept(const Row& row, std::int64_t kept, std::uint64_t seed, std::int64_t position) {
  float best = kMinusInfinity;
  TokenId best_id = 0;
  for (std::int64_t i = 0; i < kept; ++i) {
    const TokenId id = row.candidates[i];
    const float score = row.logits[id] + gumbel_noise(seed, position, id);
    if (score > best || (score == best && id < best_id)) {
      best = score;
      best_id = id;
    }
  }
  return best_id;
}

// `raw_copy`: room for the row.
void choose(const Row& row, const LogitRow& what, LogprobsMode mode, SamplerState& sampler, float* raw_copy,
            TokenChoice& choice) {
  choice = TokenChoice{};
  const bool scored = what.target >= 0;
  choice.id = scored ? what.target : 0;
  const LogitScan raw_scan = row.kernels.scan_logits(row.logits, row.count);
  if (!raw_scan.finite) {
    choice.non_finite = 1;
    return;
  }
  const bool wants_logprobs = what.top_logprobs >= 0;
  const bool raw = mode == LogprobsMode::Raw || scored;
  Row raw_row = row;
  if (wants_logprobs && raw && !scored) {
    std::copy(row.logits, row.logits + row.count, raw_copy);
    raw_row.logits = raw_copy;
  }
  if (!scored) {
    const SamplingParams& p = sampler.params(what.slot);
    sampler.adjust(what.slot, what.step_index, row.logits, static_cast<int>(row.vocab));
    const bool processed = wants_logprobs && !raw;
    float largest = row.kernels.scan_logits(row.logits, row.vocab).largest;
    if (largest == kMinusInfinity) {
      choice.non_finite = 1;
      return;
    }
    if (is_greedy(p)) {
      row.kernels.collect(row.logits, row.vocab, largest, &choice.id, 1);
      if (processed) report_all(row, largest, row.vocab, choice.id, what.top_logprobs, choice);
    } else {
      row.kernels.divide(row.logits, row.vocab, p.temperature);
      largest /= p.temperature;  // dividing keeps the order
      const bool restricted = (p.top_k > 0 && p.top_k < row.vocab) || p.top_p < 1.0f || p.min_p > 0.0f;
      if (restricted) {
        const std::int64_t kept = keep(row, p, largest);
        choice.id = sample_kept(row, kept, p.seed, what.position);
        if (processed) {
          const std::int64_t top = std::min<std::int64_t>(what.top_logprobs, kept);
          std::partial_sort(row.candidates, row.candidates + top, row.candidates + kept,
                            [&row](TokenId a, TokenId b) { return row.before(a, b); });
          report(row, largest, weight_of(row, row.candidates, kept, largest), choice.id, top, choice);
        }
      } else {
        choice.id = row.kernels.sample_gumbel(row.logits, row.vocab, p.seed, what.position);
        if (processed) report_all(row, largest, row.vocab, choice.id, what.top_logprobs, choice);
      }
    }
  }
  if (wants_logprobs && raw)
    report_all(raw_row, raw_scan.largest, row.count, choice.id, what.top_logprobs, choice);
}

}  // namespace

void sample(const Shop& shop, SamplerState& sampler, const SampleArgs& args, const SampleScratch& scratch,
            TokenChoice* choices) {
  const std::int64_t count = args.logits.size(1);
  const std::int64_t vocab = std::min<std::int64_t>(args.vocab, count);
  // One at a time: the sampler's own scratch (penalty counts) is shared.
  for (std::int64_t r = 0; r < args.logits.size(0); ++r) {
    const std::int64_t i = args.first + r;
    const Row row{.kernels = shop.kernels,
                  .logits = args.logits.row(r),
                  .count = count,
                  .vocab = vocab,
                  .candidates = scratch.candidates};
    choose(row, shop.step.logit_rows()[static_cast<std::size_t>(i)], args.mode, sampler, scratch.logits,
           choices[i]);
    args.ids[i] = choices[i].id;
  }
}

}  // namespace tandem::ops::cpu
