#include "ops/host_step.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::ops {

void HostStep::reserve(const StepLimits& limits) {
  limits_ = limits;
  // One more than the context needs: a padding row may stand at any position of the scratch page.
  table_length_ = static_cast<std::size_t>((limits.max_context + kPageTokens - 1) / kPageTokens) + 1;
  tables_.assign((static_cast<std::size_t>(limits.slots) + 1) * table_length_, PageId{limits.pages});
  tokens_.reserve(static_cast<std::size_t>(limits.max_tokens));
  rows_.reserve(static_cast<std::size_t>(limits.max_rows));
  logit_rows_.reserve(static_cast<std::size_t>(limits.max_tokens));
}

Result<void> HostStep::take(const StepView& step) {
  const auto refuse = [](std::size_t row, const char* what, std::int64_t came, std::int64_t most) {
    return fail(ErrorKind::Invalid,
                fmt::format("[step] row {}: {} is {}, at most {} fits", row, what, came, most));
  };
  const std::int64_t total = step.total_tokens();
  if (total > limits_.max_tokens) return refuse(0, "tokens of the step", total, limits_.max_tokens);
  if (std::ssize(step.rows) > limits_.max_rows) {
    return refuse(0, "rows of the step", std::ssize(step.rows), limits_.max_rows);
  }
  if (std::ssize(step.logit_rows) > total) return refuse(0, "logit rows", std::ssize(step.logit_rows), total);
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const StepRow& row = step.rows[r];
    if (row.slot.value < 0 || row.slot.value > limits_.slots)
      return refuse(r, "slot", row.slot.value, limits_.slots);
    if (row.tokens < 1 || row.token_begin < 0 || row.token_begin + row.tokens > total) {
      return refuse(r, "end of its tokens", row.token_begin + row.tokens, total);
    }
    if (row.page_begin < 0 || row.page_begin + row.page_count > std::ssize(step.pages)) {
      return refuse(r, "end of its page table", row.page_begin + row.page_count, std::ssize(step.pages));
    }
    if (row.page_count > static_cast<std::int64_t>(table_length_)) {
      return refuse(r, "page count", row.page_count, static_cast<std::int64_t>(table_length_));
    }
    const std::int64_t covered = std::int64_t{row.page_count} * kPageTokens;
    if (row.base_pos < 0 || std::int64_t{row.base_pos} + row.tokens > covered) {
      return refuse(r, "last position + 1", std::int64_t{row.base_pos} + row.tokens, covered);
    }
    PageId* table = tables_.data() + static_cast<std::size_t>(row.slot.value) * table_length_;
    for (int i = std::clamp(row.known_pages, 0, row.page_count); i < row.page_count; ++i) {
      const PageId page = step.pages[static_cast<std::size_t>(row.page_begin + i)];
      if (page.value < 0 || page.value > limits_.pages) return refuse(r, "page", page.value, limits_.pages);
      table[i] = page;
    }
  }
  for (std::size_t r = 0; r < step.logit_rows.size(); ++r) {
    const LogitRow& row = step.logit_rows[r];
    if (row.token < 0 || row.token >= total) return refuse(r, "token of the logit row", row.token, total - 1);
    if (row.slot.value < 0 || row.slot.value > limits_.slots) {
      return refuse(r, "slot of the logit row", row.slot.value, limits_.slots);
    }
    if (row.target >= limits_.vocab) return refuse(r, "target", row.target, limits_.vocab - 1);
  }
  tokens_.assign(step.tokens.begin(), step.tokens.end());
  rows_.assign(step.rows.begin(), step.rows.end());
  logit_rows_.assign(step.logit_rows.begin(), step.logit_rows.end());
  return {};
}

}  // namespace tandem::ops
