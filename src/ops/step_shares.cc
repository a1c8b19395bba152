#include "ops/step_shares.h"

#include <utility>

namespace tandem::ops {

std::string_view name(StepPart part) {
  switch (part) {
    case StepPart::Products: return "weight products";
    case StepPart::Head: return "head";
    case StepPart::Delta: return "delta rule";
    case StepPart::Attention: return "attention";
    case StepPart::Norms: return "norms";
    case StepPart::Rotary: return "rotary";
    case StepPart::Embedding: return "embedding";
    case StepPart::Sampling: return "sampling";
    case StepPart::Host: return "host";
    case StepPart::Between: return "between steps";
  }
  return "?";
}

StepShares ShareMeter::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(shares_, {});
}

void ShareMeter::add(const StepTimes& step, int decode_rows, int rows, std::int64_t weight_bytes) {
  const std::lock_guard lock(mutex_);
  StepTimes& kind = decode_rows == rows ? shares_.decode : decode_rows == 0 ? shares_.prompt : shares_.mixed;
  kind.steps += step.steps;
  kind.tokens += step.tokens;
  kind.total += step.total;
  for (std::size_t part = 0; part < kStepParts; ++part) kind.parts[part] += step.parts[part];
  shares_.weight_bytes = weight_bytes;
}

}  // namespace tandem::ops
