#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "ops/sampling.h"
#include "ops/step_view.h"
#include "rank/book.h"
#include "rank/step.h"

namespace tandem::rank {

// Which logit rows of a step belong to which request, to make artifacts of the choices.
struct WantedLogits {
  RequestId request;
  int first = 0;   // index of its first logit row
  int prompt = 0;  // logit rows that score prompt tokens; they come first
  bool samples = false;
};

// Turns the controller's step into the operators' view of it: decode rows, then padding, then prefill rows,
// with the page tables of the rank's book.
//
// Thread: the rank's. The view points into the builder and into the step; it lives until the next build().
class StepBuilder {
 public:
  // Padding rows write to this slot and this page.
  StepBuilder(SlotId trash_slot, PageId scratch_page)
      : trash_slot_(trash_slot), scratch_page_(scratch_page) {}

  // `book` has applied the step.
  [[nodiscard]] ops::StepView build(const Step& step, const Book& book);
  // Of the latest step, in the order of its rows.
  [[nodiscard]] const std::vector<WantedLogits>& wanted() const { return wanted_; }

 private:
  void add(const Row& row, const Book& book);
  void add_padding();
  void add_logits(const Row& row, int token_begin);

  SlotId trash_slot_;
  PageId scratch_page_;
  std::vector<TokenId> tokens_;
  std::vector<ops::StepRow> rows_;
  std::vector<PageId> pages_;
  std::vector<ops::LogitRow> logit_rows_;
  std::vector<WantedLogits> wanted_;
};

// The artifacts of a step from its choices, one per logit row.
[[nodiscard]] std::vector<Artifact> make_artifacts(std::span<const WantedLogits> wanted,
                                                   std::span<const ops::TokenChoice> choices);

}  // namespace tandem::rank
