#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ops/backend.h"

// What operator tests share: random tensors, steps made row by row, pools with their bytes in view.
// Included by tests only.

namespace tandem::ops::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  [[nodiscard]] int between(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine_);
  }
  [[nodiscard]] float normal() { return normal_(engine_); }
  [[nodiscard]] std::vector<bf16> bf16s(std::int64_t n, float scale = 1.0f) {
    std::vector<bf16> values(static_cast<std::size_t>(n));
    for (bf16& value : values) value = to_bf16(normal() * scale);
    return values;
  }
  [[nodiscard]] std::vector<float> floats(std::int64_t n, float scale = 1.0f, float mean = 0.0f) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = mean + normal() * scale;
    return values;
  }
  // A permutation of 0..n-1.
  [[nodiscard]] std::vector<int> shuffled(int n) {
    std::vector<int> order(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), engine_);
    return order;
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// A request as tests see it: where its state lies and how far it is.
struct Request {
  SlotId slot;
  std::vector<PageId> pages;
  int length = 0;  // tokens processed
};

// Collects rows into a StepView. Add decode rows first.
class StepMaker {
 public:
  // The request's next `tokens` tokens; advances it.
  void add(Request& request, RowKind kind, int tokens, const SamplingParams* sampling = nullptr,
           TokenId first_id = 0) {
    StepRow row;
    row.kind = kind;
    row.token_begin = static_cast<std::int32_t>(tokens_.size());
    row.tokens = tokens;
    row.base_pos = request.length;
    row.slot = request.slot;
    row.page_begin = static_cast<std::int32_t>(pages_.size());
    row.page_count = (request.length + tokens + kPageTokens - 1) / kPageTokens;
    row.sampling = sampling;
    for (int i = 0; i < row.page_count; ++i) pages_.push_back(request.pages.at(static_cast<std::size_t>(i)));
    for (int i = 0; i < tokens; ++i) tokens_.push_back(first_id + i);
    if (kind == RowKind::Decode) ++decode_rows_;
    rows_.push_back(row);
    request.length += tokens;
  }
  void add_logits(LogitRow row) { logit_rows_.push_back(row); }
  [[nodiscard]] std::vector<TokenId>& tokens() { return tokens_; }
  [[nodiscard]] const std::vector<StepRow>& rows() const { return rows_; }
  [[nodiscard]] int total_tokens() const { return static_cast<int>(tokens_.size()); }
  [[nodiscard]] StepView view() const {
    return {.tokens = tokens_,
            .rows = rows_,
            .pages = pages_,
            .logit_rows = logit_rows_,
            .decode_rows = decode_rows_};
  }

 private:
  std::vector<TokenId> tokens_;
  std::vector<StepRow> rows_;
  std::vector<PageId> pages_;
  std::vector<LogitRow> logit_rows_;
  int decode_rows_ = 0;
};

// One layer's KV pages. Pool memory is NaN until written.
class KvPool {
 public:
  KvPool(int pages, int kv_heads) : kv_heads_(kv_heads) {
    const std::int64_t part = std::int64_t{kv_heads} * kPageTokens * kHeadDim;
    data_.assign(static_cast<std::size_t>((pages + 1) * 2 * part), bf16{0xffff});
    view_ = {.base = data_.data(), .page_stride = 2 * part, .v_offset = part, .kv_heads = kv_heads};
  }
  [[nodiscard]] KvPages view() const { return view_; }
  [[nodiscard]] std::vector<bf16>& data() { return data_; }
  // K (part 0) or V (part 1) of one position.
  [[nodiscard]] bf16* at(PageId page, int part, int head, int offset) {
    return view_.base + page.value * view_.page_stride + part * view_.v_offset +
           (std::int64_t{head} * kPageTokens + offset) * kHeadDim;
  }

 private:
  int kv_heads_;
  std::vector<bf16> data_;
  KvPages view_;
};

// One layer's conv windows and recurrent states, NaN until written.
class StatePool {
 public:
  StatePool(int slots, DeltaShape shape) {
    conv_stride_ = std::int64_t{shape.channels()} * kConvWindow;
    state_stride_ = std::int64_t{shape.value_heads} * kDeltaHeadDim * kDeltaHeadDim;
    conv_.assign(static_cast<std::size_t>((slots + 1) * conv_stride_), bf16{0xffff});
    state_.assign(static_cast<std::size_t>((slots + 1) * state_stride_), NAN);
  }
  [[nodiscard]] DeltaState view() {
    return {.conv = conv_.data(),
            .conv_stride = conv_stride_,
            .state = state_.data(),
            .state_stride = state_stride_};
  }
  [[nodiscard]] std::vector<bf16>& conv() { return conv_; }
  [[nodiscard]] std::vector<float>& state() { return state_; }
  [[nodiscard]] std::vector<bf16> conv_of(SlotId slot) const {
    const auto begin = conv_.begin() + slot.value * conv_stride_;
    return {begin, begin + conv_stride_};
  }
  [[nodiscard]] std::vector<float> state_of(SlotId slot) const {
    const auto begin = state_.begin() + slot.value * state_stride_;
    return {begin, begin + state_stride_};
  }

 private:
  std::int64_t conv_stride_ = 0, state_stride_ = 0;
  std::vector<bf16> conv_;
  std::vector<float> state_;
};

// Equal bits, NaN included.
template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline HostMatrix matrix(const std::vector<bf16>& data, std::int64_t rows, std::int64_t cols) {
  return {.data = data.data(), .rows = rows, .cols = cols, .row_stride = cols};
}

// The distance of two bf16 values in units of the last place of the larger, with `floor` as the least
// magnitude that counts (below, cancellation makes units meaningless).
inline float ulps(bf16 a, bf16 b, float floor) {
  const float x = to_float(a);
  const float y = to_float(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y) ? 0.0f : INFINITY;
  const float magnitude = std::max({std::abs(x), std::abs(y), floor});
  return std::abs(x - y) / std::ldexp(1.0f, std::ilogb(magnitude) - 7);
}

}  // namespace tandem::ops::testing
