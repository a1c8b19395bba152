#include "rank/step_builder.h"

namespace tandem::rank {

ops::StepView StepBuilder::build(const Step& step, const Book& book) {
  tokens_.clear();
  rows_.clear();
  pages_.clear();
  logit_rows_.clear();
  wanted_.clear();
  std::size_t next = 0;
  for (; next < step.rows.size() && step.rows[next].kind == ops::RowKind::Decode; ++next)
    add(step.rows[next], book);
  for (int i = 0; i < step.padding_rows; ++i) add_padding();
  const int decode_rows = static_cast<int>(rows_.size());
  for (; next < step.rows.size(); ++next) add(step.rows[next], book);
  return {.tokens = tokens_,
          .rows = rows_,
          .pages = pages_,
          .logit_rows = logit_rows_,
          .decode_rows = decode_rows};
}

void StepBuilder::add(const Row& row, const Book& book) {
  const Book::Table table = book.table(row.request);
  const auto token_begin = static_cast<std::int32_t>(tokens_.size());
  rows_.push_back({.kind = row.kind,
                   .token_begin = token_begin,
                   .tokens = row.tokens,
                   .base_pos = row.base_pos,
                   .slot = row.slot,
                   .page_begin = static_cast<std::int32_t>(pages_.size()),
                   .page_count = static_cast<std::int32_t>(table.pages.size()),
                   .known_pages = table.known,
                   .sampling = row.sampling ? &*row.sampling : nullptr});
  pages_.insert(pages_.end(), table.pages.begin(), table.pages.end());
  if (row.ids.empty()) {
    tokens_.push_back(ops::kLastSampled);
  } else {
    tokens_.insert(tokens_.end(), row.ids.begin(), row.ids.end());
  }
  add_logits(row, token_begin);
}

void StepBuilder::add_padding() {
  rows_.push_back({.kind = ops::RowKind::Decode,
                   .token_begin = static_cast<std::int32_t>(tokens_.size()),
                   .tokens = 1,
                   .base_pos = 0,
                   .slot = trash_slot_,
                   .page_begin = static_cast<std::int32_t>(pages_.size()),
                   .page_count = 1});
  pages_.push_back(scratch_page_);
  tokens_.push_back(0);
}

void StepBuilder::add_logits(const Row& row, int token_begin) {
  WantedLogits wanted{.request = row.request, .first = static_cast<int>(logit_rows_.size())};
  if (row.prompt_logprobs >= 0) {
    // The hidden vector of token i scores token i + 1.
    for (std::int32_t i = 0; i < row.tokens; ++i) {
      const TokenId target = i + 1 < row.tokens ? row.ids[static_cast<std::size_t>(i) + 1] : row.prompt_next;
      if (target < 0) continue;
      logit_rows_.push_back({.token = token_begin + i,
                             .slot = row.slot,
                             .position = row.base_pos + i + 1,
                             .target = target,
                             .top_logprobs = row.prompt_logprobs});
      ++wanted.prompt;
    }
  }
  if (row.samples) {
    logit_rows_.push_back({.token = token_begin + row.tokens - 1,
                           .slot = row.slot,
                           .position = row.base_pos + row.tokens,
                           .step_index = row.generated,
                           .target = row.score,
                           .top_logprobs = row.top_logprobs});
    wanted.samples = true;
  }
  if (wanted.prompt > 0 || wanted.samples) wanted_.push_back(wanted);
}

std::vector<Artifact> make_artifacts(std::span<const WantedLogits> wanted,
                                     std::span<const ops::TokenChoice> choices) {
  std::vector<Artifact> artifacts;
  artifacts.reserve(wanted.size());
  for (const WantedLogits& want : wanted) {
    Artifact& artifact = artifacts.emplace_back();
    artifact.request = want.request;
    const auto scored =
        choices.subspan(static_cast<std::size_t>(want.first), static_cast<std::size_t>(want.prompt));
    artifact.prompt_logprobs.assign(scored.begin(), scored.end());
    if (want.samples) artifact.choice = choices[static_cast<std::size_t>(want.first + want.prompt)];
  }
  return artifacts;
}

}  // namespace tandem::rank
