#include "model/self_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tandem::model {

Result<void> self_check(ops::Backend& backend, Forward& forward, SlotId trash, PageId scratch) {
  const ops::StepLimits& limits = forward.limits();
  const int vocab = forward.geometry().vocab;
  const int count = std::min({8, limits.max_tokens, limits.max_context});
  std::vector<TokenId> tokens;  // spread over the vocabulary
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((std::int64_t{vocab} * (2 * i + 1)) / (2 * count)));

  const ops::SamplingParams greedy{.temperature = 0.0f, .stop_ids = {}, .logit_bias = {}};
  const ops::StepRow row{.kind = ops::RowKind::Prefill,
                         .tokens = count,
                         .slot = trash,
                         .page_count = 1,
                         .sampling = &greedy};
  const ops::LogitRow last{.token = count - 1, .slot = trash, .position = count, .target = 0,
                           .top_logprobs = ops::kMaxTopLogprobs};
  TANDEM_ASSIGN(const std::uint64_t ticket,
                forward.run({.tokens = tokens,
                             .rows = std::span(&row, 1),
                             .pages = std::span(&scratch, 1),
                             .logit_rows = std::span(&last, 1)}));
  TANDEM_ASSIGN(const std::span<const ops::TokenChoice> choices, backend.wait(ticket));
  if (!forward.partition().has_head()) return {};
  const ops::TokenChoice& choice = choices.front();
  if (choice.non_finite != 0) {
    return fail(ErrorKind::Corrupt, "[self check] the model's logits are not finite numbers; the checkpoint is damaged");
  }
  // Equal probabilities can only come from logits that say nothing. The best of a real distribution
  // differ by far more than the sums' rounding.
  const int top = choice.top_count;
  if (top > 1 && choice.top_logprobs[0] - choice.top_logprobs[static_cast<std::size_t>(top) - 1] < 1e-4f) {
    return fail(ErrorKind::Corrupt,
                fmt::format("[self check] the model finds its {} best tokens equally likely (logprob {}); the checkpoint is "
                            "damaged or was never filled",
                            top, choice.top_logprobs[0]));
  }
  return {};
}

}  // namespace tandem::model
