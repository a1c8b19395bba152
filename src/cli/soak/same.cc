#include "cli/soak/same.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/philox.h"

namespace tandem::cli::soak {
namespace {

// What the sampler compared for this id at this place.
double rank_of(const engine::Request& request, std::size_t place, TokenId id, double logprob) {
  if (ops::is_greedy(request.sampling)) return logprob;
  const auto position = static_cast<std::int64_t>(request.prompt.size() + place);
  return logprob + static_cast<double>(ops::gumbel_noise(request.sampling.seed, position, id));
}

// The logprob that `alone` gives an id at its place: its own choice's, or one of its list's.
std::optional<double> logprob_of(const engine::TokenLogprob& at, TokenId id) {
  if (at.id == id) return at.logprob;
  for (const auto& [other, logprob] : at.top)
    if (other == id) return logprob;
  return std::nullopt;
}

Verdict& refuse(Verdict& verdict, std::string why) {
  verdict.same = false;
  verdict.why = std::move(why);
  return verdict;
}

std::string of(const std::optional<engine::Finish>& finish) {
  if (!finish) return "no end";
  return fmt::format("{} after {} tokens{}", finish->reason == engine::FinishReason::Stop ? "stop" : "length", finish->usage.completion_tokens,
                     finish->stop_token ? fmt::format(" by token {}", *finish->stop_token) : "");
}

}  // namespace

Verdict judge(const engine::Request& request, const Answer& got, const Answer& alone, double tolerance) {
  Verdict verdict;
  const bool greedy = ops::is_greedy(request.sampling);
  if (!greedy) tolerance /= static_cast<double>(request.sampling.temperature);
  const std::size_t common = std::min(got.tokens.size(), alone.tokens.size());
  for (std::size_t i = 0; i < common; ++i) {
    const engine::TokenLogprob &here = got.tokens[i], &there = alone.tokens[i];
    ++verdict.tokens;
    if (here.id == there.id) {
      const double distance = std::abs(static_cast<double>(here.logprob) - static_cast<double>(there.logprob));
      verdict.distance += distance;
      verdict.largest = std::max(verdict.largest, distance);
      continue;
    }
    // An id outside the list of the one that was alone is judged by its own side's logprob: had both sides the same
    // order of errors, the winners' places in the two races differ by no more than one side's error.
    const std::optional<double> known = logprob_of(there, here.id);
    if (!known && greedy)
      return refuse(verdict, fmt::format("token {} is {}, which is none of the {} best of the one alone, {}", i, here.id, there.top.size(), there.id));
    verdict.gap = std::abs(rank_of(request, i, there.id, there.logprob) - rank_of(request, i, here.id, known.value_or(here.logprob)));
    if (verdict.gap > tolerance)
      return refuse(verdict, fmt::format("token {} is {}, alone {}, whose candidates lie {:.4f} apart, more than {:.4f}", i, here.id, there.id,
                                         verdict.gap, tolerance));
    verdict.differs = true;
    return verdict;
  }
  if (!got.finish && got.tokens.size() <= alone.tokens.size()) return verdict;  // cancelled: what came is a beginning
  if (got.tokens.size() != alone.tokens.size())
    return refuse(verdict, fmt::format("{} tokens, alone {}", got.tokens.size(), alone.tokens.size()));
  if (of(got.finish) != of(alone.finish)) return refuse(verdict, fmt::format("it ends with {}, alone with {}", of(got.finish), of(alone.finish)));
  return verdict;
}

}  // namespace tandem::cli::soak
