#include <algorithm>
#include <array>
#include <cmath>

#include "ops/reference/operators.h"
#include "ops/reference/scalar_math.h"
#include "ops/reference/sums.h"

namespace tandem::ops::reference {
namespace {

constexpr float kScale = 0.0625f;  // 256^(-1/2)
using Head = std::array<float, kHeadDim>;

// softmax(q k^T / 16) v over the positions 0..last, in ascending order.
Head attend(const Head& q, const KvPages& kv, int kv_head, const PageId* pages, std::int32_t last,
            std::vector<float>& scores) {
  const auto k_at = [&](std::int32_t position) {
    return kv.base + pages[position / kPageTokens].value * kv.page_stride +
           (kv_head * kPageTokens + position % kPageTokens) * kHeadDim;
  };
  Head x;
  scores.resize(static_cast<std::size_t>(last) + 1);
  float largest = -INFINITY;
  for (std::int32_t p = 0; p <= last; ++p) {
    to_floats(x.data(), k_at(p), kHeadDim);
    const float score = dot(q.data(), x.data(), kHeadDim) * kScale;
    scores[static_cast<std::size_t>(p)] = score;
    largest = std::max(largest, score);
  }
  Head sum{};
  float total = 0.0f;
  for (std::int32_t p = 0; p <= last; ++p) {
    const float weight = std::exp(scores[static_cast<std::size_t>(p)] - largest);
    total += weight;
    to_floats(x.data(), k_at(p) + kv.v_offset, kHeadDim);
    add_scaled(sum.data(), weight, x.data(), kHeadDim);
  }
  for (float& value : sum) value /= total;
  return sum;
}

}  // namespace

void attention(const HostStep& step, const AttentionArgs& args) {
  const std::int64_t heads = args.q.size(1);
  const std::int64_t group = heads / args.kv.kv_heads;
  std::vector<float> scores;
  for (const StepRow& row : step.rows()) {
    for (int i = 0; i < row.tokens; ++i) {
      const std::int64_t t = row.token_begin + i;
      for (std::int64_t j = 0; j < heads; ++j) {
        Head q;
        to_floats(q.data(), args.q.row(t, j), kHeadDim);
        const Head o =
            attend(q, args.kv, static_cast<int>(j / group), step.pages(row), row.base_pos + i, scores);
        const bf16* gate = args.gate.row(t, j);
        bf16* y = args.y.row(t, j);
        for (int d = 0; d < kHeadDim; ++d) {
          y[d] = to_bf16(round_bf16(o[d]) * round_bf16(sigmoid(to_float(gate[d]))));
        }
      }
    }
  }
}

}  // namespace tandem::ops::reference
