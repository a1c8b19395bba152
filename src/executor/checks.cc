#include "executor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

namespace tandem::executor {
namespace {

using ops::kPageTokens;
using ops::RowKind;
using rank::Row;

class StepCheck {
 public:
  StepCheck(const rank::Step& step, const rank::Capacity& capacity, bool mixed)
      : step_(step), capacity_(capacity), mixed_(mixed) {}

  Result<void> run() {
    if (step_.rows.empty()) return refuse("a step without rows");
    if (step_.padding_rows < 0) return refuse(fmt::format("padding_rows = {}", step_.padding_rows));
    std::int64_t tokens = step_.padding_rows;
    std::int32_t decode_rows = 0;
    for (const Row& row : step_.rows) {
      TANDEM_TRY(check_row(row));
      if (row.kind == RowKind::Decode) {
        if (decode_rows != seen_rows_) return refuse_row(row, "is a decode row behind a prefill row");
        ++decode_rows;
      }
      ++seen_rows_;
      tokens += row.tokens;
    }
    const bool decodes = decode_rows + step_.padding_rows > 0;
    if (!mixed_ && decodes && decode_rows < seen_rows_) {
      return refuse(
          "decode and prefill rows in one step, which this executor was not started for (--mixed off)");
    }
    const std::int32_t limit = decodes ? std::max(capacity_.max_step_tokens, capacity_.max_mixed_tokens) : capacity_.max_step_tokens;
    if (tokens > limit) return refuse(fmt::format("{} tokens; {} fit into this kind of step", tokens, limit));
    // Rows are bounded by the slots, of which each names its own; padding by the same number again.
    if (step_.padding_rows > capacity_.slots) {
      return refuse(fmt::format("{} padding rows; {} fit", step_.padding_rows, capacity_.slots));
    }
    return {};
  }

 private:
  Result<void> check_row(const Row& row) {
    if (row.request.value == 0) return refuse_row(row, "has no request id");
    if (!requests_.insert(row.request).second) return refuse_row(row, "stands twice in the step");
    if (row.slot.value < 0 || row.slot.value >= capacity_.slots) {
      return refuse_row(row, fmt::format("names slot {} of {}", row.slot.value, capacity_.slots));
    }
    if (!slots_.insert(row.slot).second) {
      return refuse_row(row, fmt::format("names slot {}, which another row names", row.slot.value));
    }
    for (const PageId page : row.new_pages) {
      if (page.value < 0 || page.value >= capacity_.pages) {
        return refuse_row(row, fmt::format("adds page {} of {}", page.value, capacity_.pages));
      }
      if (!pages_.insert(page).second) {
        return refuse_row(row, fmt::format("adds page {}, which the step adds already", page.value));
      }
    }
    TANDEM_TRY(check_tokens(row));
    return check_wishes(row);
  }

  Result<void> check_tokens(const Row& row) {
    if (row.tokens < 1) return refuse_row(row, fmt::format("has {} tokens", row.tokens));
    if (row.base_pos < 0 || std::int64_t{row.base_pos} + row.tokens > capacity_.max_context) {
      return refuse_row(row, fmt::format("covers positions {} to {}; the context has {}", row.base_pos,
                                         std::int64_t{row.base_pos} + row.tokens - 1, capacity_.max_context));
    }
    const bool takes_last = row.kind == RowKind::Decode && row.ids.empty();
    if (!takes_last && row.ids.size() != static_cast<std::size_t>(row.tokens)) {
      return refuse_row(row, fmt::format("has {} ids for {} tokens", row.ids.size(), row.tokens));
    }
    for (const TokenId id : row.ids) {
      if (id < 0 || id >= capacity_.vocab) {
        return refuse_row(row, fmt::format("has token id {}; ids are 0 to {}", id, capacity_.vocab - 1));
      }
    }
    if (row.kind == RowKind::Decode) {
      if (row.tokens != 1) return refuse_row(row, fmt::format("decodes {} tokens at once", row.tokens));
      if (row.base_pos == 0)
        return refuse_row(row, "decodes at position 0; a request starts with a prefill row");
      return {};
    }
    if (row.base_pos % kPageTokens != 0) {
      return refuse_row(row, fmt::format("has a chunk from position {}; chunks start at multiples of {}",
                                         row.base_pos, kPageTokens));
    }
    if (!row.samples && (row.base_pos + row.tokens) % kPageTokens != 0) {
      return refuse_row(
          row, fmt::format("has a chunk to position {} that does not end its prompt; such chunks end "
                           "at multiples of {}",
                           row.base_pos + row.tokens, kPageTokens));
    }
    return {};
  }

  Result<void> check_wishes(const Row& row) {
    if (row.kind == RowKind::Decode && !row.samples)
      return refuse_row(row, "is a decode row that samples nothing");
    if (row.sampling.has_value() != (row.base_pos == 0)) {
      return refuse_row(row, row.sampling ? "brings sampling settings, which belong into its first row"
                                          : "is a first row without sampling settings");
    }
    if (row.score >= 0 && !row.samples) return refuse_row(row, "scores an id but does not sample");
    if (row.score >= capacity_.vocab || row.prompt_next >= capacity_.vocab) {
      return refuse_row(row, fmt::format("asks to score id {}; ids are 0 to {}",
                                         std::max(row.score, row.prompt_next), capacity_.vocab - 1));
    }
    if (std::max(row.top_logprobs, row.prompt_logprobs) > ops::kMaxTopLogprobs) {
      return refuse_row(row,
                        fmt::format("asks for {} alternatives; at most {} can be had",
                                    std::max(row.top_logprobs, row.prompt_logprobs), ops::kMaxTopLogprobs));
    }
    if (row.prompt_logprobs >= 0) {
      if (row.kind == RowKind::Decode) return refuse_row(row, "is a decode row and asks for prompt logprobs");
      if (row.samples != (row.prompt_next < 0)) {
        return refuse_row(row, row.samples
                                   ? "ends its prompt but names a next prompt token"
                                   : "does not end its prompt and names no next prompt token to score");
      }
    }
    return {};
  }

  Result<void> refuse(std::string what) const {
    return fail(ErrorKind::Invalid, "[step] " + std::move(what));
  }
  Result<void> refuse_row(const Row& row, std::string_view what) const {
    return fail(ErrorKind::Invalid,
                fmt::format("[step] row {}: request {} {}", seen_rows_, row.request.value, what));
  }

  const rank::Step& step_;
  const rank::Capacity& capacity_;
  const bool mixed_;
  std::int32_t seen_rows_ = 0;
  std::unordered_set<RequestId> requests_;
  std::unordered_set<SlotId> slots_;
  std::unordered_set<PageId> pages_;
};

Result<void> broken(RequestId request, std::string_view what) {
  return fail(ErrorKind::Protocol, fmt::format("[artifacts] request {}: {}", request.value, what));
}

Result<void> check_choice(const Row& row, const ops::TokenChoice& choice, const rank::Capacity& capacity) {
  if (choice.non_finite != 0) return {};
  if (choice.id < 0 || choice.id >= capacity.vocab) {
    return broken(row.request, fmt::format("chose id {}; ids are 0 to {}", choice.id, capacity.vocab - 1));
  }
  if (row.score >= 0 && choice.id != row.score) {
    return broken(row.request, fmt::format("scored id {} instead of {}", choice.id, row.score));
  }
  if (choice.top_count < 0 || choice.top_count > ops::kMaxTopLogprobs) {
    return broken(row.request, fmt::format("{} alternatives", choice.top_count));
  }
  return {};
}

}  // namespace

std::int32_t scored_prompt_tokens(const Row& row) {
  if (row.prompt_logprobs < 0) return 0;
  return row.prompt_next >= 0 ? row.tokens : row.tokens - 1;
}

Result<void> check_step(const rank::Step& step, const rank::Capacity& capacity, bool mixed) {
  return StepCheck(step, capacity, mixed).run();
}

Result<void> check_artifacts(const rank::Step& step, const rank::StepResult& result,
                             const rank::Capacity& capacity) {
  std::unordered_map<RequestId, const Row*> owed;
  std::unordered_map<RequestId, const Row*> in_step;
  for (const Row& row : step.rows) {
    in_step.emplace(row.request, &row);
    if (row.samples || scored_prompt_tokens(row) > 0) owed.emplace(row.request, &row);
  }
  for (const rank::Artifact& artifact : result.artifacts) {
    const auto known = in_step.find(artifact.request);
    if (known == in_step.end()) return broken(artifact.request, "an artifact, but no row in the step");
    const Row& row = *known->second;
    if (!row.samples && artifact.choice) return broken(row.request, "a token before its prompt ends");
    if (owed.erase(artifact.request) == 0) {
      return broken(row.request, row.samples || scored_prompt_tokens(row) > 0
                                     ? "a second artifact"
                                     : "an artifact for a row that owes none");
    }
    if (row.samples && !artifact.choice) return broken(row.request, "an artifact without its token");
    if (artifact.choice) TANDEM_TRY(check_choice(row, *artifact.choice, capacity));
    if (artifact.prompt_logprobs.size() != static_cast<std::size_t>(scored_prompt_tokens(row))) {
      return broken(row.request, fmt::format("{} scored prompt tokens instead of {}",
                                             artifact.prompt_logprobs.size(), scored_prompt_tokens(row)));
    }
  }
  if (!owed.empty()) {
    for (const Row& row : step.rows) {  // the first in the order of the step
      if (owed.contains(row.request)) return broken(row.request, "no artifact");
    }
  }
  return {};
}

}  // namespace tandem::executor
