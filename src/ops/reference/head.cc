#include "ops/reference/operators.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {

void head(const HostStep& step, const HeadArgs& args) {
  const std::int64_t count = args.logits.size(0);
  const std::int64_t hidden = args.weight.cols;
  const auto* weight = static_cast<const bf16*>(args.weight.packed);
  std::vector<float> x(static_cast<std::size_t>(count * hidden));
  for (std::int64_t r = 0; r < count; ++r) {
    const LogitRow& row = step.logit_rows()[static_cast<std::size_t>(args.first + r)];
    to_floats(x.data() + r * hidden, args.hidden.row(row.token), hidden);
  }
  std::vector<float> w(static_cast<std::size_t>(hidden));
  for (std::int64_t n = 0; n < args.weight.rows; ++n) {
    to_floats(w.data(), weight + n * hidden, hidden);
    for (std::int64_t r = 0; r < count; ++r) {
      args.logits.row(r)[n] = round_bf16(dot(x.data() + r * hidden, w.data(), hidden));
    }
  }
}

}  // namespace tandem::ops::reference
