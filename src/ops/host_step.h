#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "ops/step_view.h"

namespace tandem::ops {

// The step's metadata as a backend on the host keeps it: its own copies, and every slot's page table,
// of which a step brings only the new end.
//
// Thread: the backend's. `take` allocates nothing after `reserve`.
class HostStep {
 public:
  void reserve(const StepLimits& limits);

  // Errors: Invalid, naming the row and what is out of bounds.
  [[nodiscard]] Result<void> take(const StepView& step);

  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const StepRow> rows() const { return rows_; }
  [[nodiscard]] std::span<const LogitRow> logit_rows() const { return logit_rows_; }
  [[nodiscard]] int total_tokens() const { return static_cast<int>(tokens_.size()); }
  [[nodiscard]] const StepLimits& limits() const { return limits_; }
  [[nodiscard]] bool is_padding(const StepRow& row) const { return row.slot.value == limits_.slots; }

  // The row's page table: entry i holds the positions [i * kPageTokens, (i + 1) * kPageTokens).
  [[nodiscard]] const PageId* pages(const StepRow& row) const {
    return tables_.data() + static_cast<std::size_t>(row.slot.value) * table_length_;
  }

 private:
  StepLimits limits_;
  std::size_t table_length_ = 0;
  std::vector<PageId> tables_;  // [slots + 1, table_length_]
  std::vector<TokenId> tokens_;
  std::vector<StepRow> rows_;
  std::vector<LogitRow> logit_rows_;
};

}  // namespace tandem::ops
