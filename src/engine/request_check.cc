#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ops/sampling_ranges.h"

namespace tandem::engine {
namespace {

tl::unexpected<Error> bad(std::string_view field, std::string what) {
  return fail(ErrorKind::Invalid, fmt::format("{} {}", field, what), std::string(field));
}

Result<void> check_range(const ops::NumberRange& range, float value) {
  if (range.holds(value)) return {};
  return fail(ErrorKind::Invalid, ops::out_of_range(range, fmt::format("{}", value)), std::string(range.name));
}

Result<void> check_ids(std::string_view field, std::span<const TokenId> ids, std::int32_t vocab) {
  for (const TokenId id : ids)
    if (id < 0 || id >= vocab)
      return bad(field, fmt::format("holds token id {}; the model's ids are 0 to {}", id, vocab - 1));
  return {};
}

Result<void> check_sampling(const ops::SamplingParams& sampling, std::int32_t vocab) {
  TANDEM_TRY(check_range(ops::kTemperature, sampling.temperature));
  TANDEM_TRY(check_range(ops::kTopP, sampling.top_p));
  TANDEM_TRY(check_range(ops::kMinP, sampling.min_p));
  TANDEM_TRY(check_range(ops::kRepetitionPenalty, sampling.repetition_penalty));
  TANDEM_TRY(check_range(ops::kPresencePenalty, sampling.presence_penalty));
  TANDEM_TRY(check_range(ops::kFrequencyPenalty, sampling.frequency_penalty));
  // What a client writes as top_p 0 or top_k -1 comes here as top_k 1 and 0.
  if (sampling.top_p == 0.0f) return bad("top_p", "is 0; for the likeliest token alone, top_k = 1 works here");
  if (sampling.top_k < 0)
    return bad("top_k", fmt::format("is {}; it must be 0 (off) or more", sampling.top_k));
  if (sampling.min_tokens < 0)
    return bad("min_tokens", fmt::format("is {}; it must be 0 or more", sampling.min_tokens));
  std::set<TokenId> biased;
  for (const auto& [id, bias] : sampling.logit_bias) {
    TANDEM_TRY(check_ids("logit_bias", std::span(&id, 1), vocab));
    if (!ops::kLogitBias.holds(bias))
      return bad("logit_bias", fmt::format("of token {} must be {}, got {}", id, ops::what_works(ops::kLogitBias), bias));
    if (!biased.insert(id).second) return bad("logit_bias", fmt::format("names token {} twice", id));
  }
  return {};
}

Result<void> check_logprobs(std::string_view field, std::int32_t wanted) {
  if (wanted >= -1 && wanted <= ops::kMaxTopLogprobs) return {};
  return bad(field, fmt::format("is {}; it must be 0 to {}", wanted, ops::kMaxTopLogprobs));
}

}  // namespace

Result<scheduler::RequestSpec> check_request(const Request& request, const RequestRules& rules) {
  const std::int32_t context = scheduler::longest_life(rules.limits.max_context, rules.limits.pages);
  if (request.prompt.empty()) return bad("prompt", "is empty; at least one token is needed");
  if (std::ssize(request.prompt) > context - 1)
    return fail(
        ErrorKind::Capacity,
        fmt::format(
            "the prompt has {} tokens; with room for one token of answer, this server's context of {} "
            "tokens takes prompts of at most {}",
            request.prompt.size(), context, context - 1),
        "prompt");
  const auto prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  TANDEM_TRY(check_ids("prompt", request.prompt, rules.vocab));
  TANDEM_TRY(check_ids("stop_token_ids", request.stop_token_ids, rules.vocab));
  TANDEM_TRY(check_sampling(request.sampling, rules.vocab));
  TANDEM_TRY(check_logprobs("logprobs", request.logprobs));
  TANDEM_TRY(check_logprobs("prompt_logprobs", request.prompt_logprobs));
  for (const std::string& stop : request.stop)
    if (stop.empty()) return bad("stop", "holds an empty string; it would stop at once");
  if (request.max_tokens && *request.max_tokens < 1)
    return bad("max_tokens", fmt::format("is {}; it must be at least 1", *request.max_tokens));

  const std::int32_t max_tokens =
      request.max_tokens.value_or(std::min(rules.default_max_tokens, context - prompt_tokens));
  TANDEM_TRY(scheduler::check_fits(rules.limits, prompt_tokens, max_tokens));
  if (request.sampling.min_tokens > max_tokens)
    return bad("min_tokens",
               fmt::format("is {}, more than max_tokens, {}", request.sampling.min_tokens, max_tokens));

  scheduler::RequestSpec spec;
  spec.prompt = request.prompt;
  spec.sampling = request.sampling;
  spec.max_tokens = max_tokens;
  spec.end_ids = request.stop_token_ids;
  if (!request.ignore_eos)
    spec.end_ids.insert(spec.end_ids.end(), rules.end_ids.begin(), rules.end_ids.end());
  std::sort(spec.end_ids.begin(), spec.end_ids.end());
  spec.end_ids.erase(std::unique(spec.end_ids.begin(), spec.end_ids.end()), spec.end_ids.end());
  spec.sampling.stop_ids = spec.sampling.min_tokens > 0 ? spec.end_ids : std::vector<TokenId>{};
  spec.top_logprobs = request.logprobs;
  spec.prompt_logprobs = request.prompt_logprobs;
  return spec;
}

}  // namespace tandem::engine
