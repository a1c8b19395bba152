#include <algorithm>
#include <array>
#include <cmath>

#include "ops/cpu/operators.h"

namespace tandem::ops::cpu {

void rotations(const Shop& shop, float theta, float* cosine, float* sine) {
  std::array<float, kRotaryHalf> frequency;
  for (int i = 0; i < kRotaryHalf; ++i) {
    frequency[static_cast<std::size_t>(i)] = 1.0f / std::pow(theta, static_cast<float>(2 * i) / kRotaryDim);
  }
  for (const StepRow& row : shop.step.rows()) {
    const auto one = [&](std::int64_t token) {
      const std::int64_t t = row.token_begin + token;
      const auto position = static_cast<float>(row.base_pos + token);
      for (int i = 0; i < kRotaryHalf; ++i) {
        const float angle = position * frequency[static_cast<std::size_t>(i)];
        cosine[t * kRotaryHalf + i] = round_bf16(std::cos(angle));
        sine[t * kRotaryHalf + i] = round_bf16(std::sin(angle));
      }
    };
    if (row.tokens < 16) {
      for (int i = 0; i < row.tokens; ++i) one(i);
    } else {
      shop.team.run(row.tokens, [&](std::int64_t i, int) { one(i); });
    }
  }
}

void attention_prepare(const Shop& shop, const AttentionPrepareArgs& args, const Rotations& table) {
  const std::int64_t heads = args.q.size(1);
  const auto one_token = [&](const StepRow& row, int i) {
    const std::int64_t t = row.token_begin + i;
    const std::int32_t position = row.base_pos + i;
    const bf16* in = args.projected.row(t);
    const float* cosine = table.cosine + t * kRotaryHalf;
    const float* sine = table.sine + t * kRotaryHalf;
    for (std::int64_t j = 0; j < heads; ++j) {
      shop.kernels.norm_rotary(in + j * 2 * kHeadDim, args.q_norm, args.eps, cosine, sine, args.q.row(t, j));
    }
    const bf16* k = in + heads * 2 * kHeadDim;
    const bf16* v = k + args.kv.kv_heads * kHeadDim;
    bf16* page = args.kv.base + shop.step.pages(row)[position / kPageTokens].value * args.kv.page_stride;
    for (int j = 0; j < args.kv.kv_heads; ++j) {
      bf16* k_out = page + (j * kPageTokens + position % kPageTokens) * kHeadDim;
      shop.kernels.norm_rotary(k + j * kHeadDim, args.k_norm, args.eps, cosine, sine, k_out);
      std::copy(v + j * kHeadDim, v + (j + 1) * kHeadDim, k_out + args.kv.v_offset);
    }
  };
  for (const StepRow& row : shop.step.rows()) {
    if (shop.step.is_padding(row)) continue;
    constexpr int kTokensAnItem = 8;  // less is not worth waking a thread
    shop.team.run((row.tokens + kTokensAnItem - 1) / kTokensAnItem, [&](std::int64_t item, int) {
      const int end = std::min<int>(static_cast<int>(item + 1) * kTokensAnItem, row.tokens);
      for (int i = static_cast<int>(item) * kTokensAnItem; i < end; ++i) one_token(row, i);
    });
  }
}

namespace {

void zero_padding(const Shop& shop, View<bf16, 3> y) {
  for (const StepRow& row : shop.step.rows()) {
    if (!shop.step.is_padding(row)) continue;
    for (int i = 0; i < row.tokens; ++i) {
      for (std::int64_t j = 0; j < y.size(1); ++j) {
        bf16* at = y.row(row.token_begin + i, j);
        std::fill(at, at + y.size(2), bf16{});
      }
    }
  }
}

}  // namespace

void attention(const Shop& shop, const AttentionArgs& args) {
  const int kv_heads = args.kv.kv_heads;
  const int group = static_cast<int>(args.q.size(1)) / kv_heads;
  const int parts =
      (group + kMostAttendHeads - 1) / kMostAttendHeads;  // of a group that is too large for the scratch
  const auto attend = [&](const StepRow& row, int first_token, int tokens, int kv_head, int part,
                          int worker) {
    const int first_head = kv_head * group + part * kMostAttendHeads;
    const std::int64_t t = row.token_begin + first_token;
    const AttendTask task{.k = args.kv.base + std::int64_t{kv_head} * kPageTokens * kHeadDim,
                          .page_stride = args.kv.page_stride,
                          .v_offset = args.kv.v_offset,
                          .pages = shop.step.pages(row),
                          .first_position = row.base_pos + first_token,
                          .tokens = tokens,
                          .group = std::min(group - part * kMostAttendHeads, kMostAttendHeads),
                          .q = args.q.row(t, first_head),
                          .q_stride = args.q.stride[0],
                          .gate = args.gate.row(t, first_head),
                          .gate_stride = args.gate.stride[0],
                          .gate_head_stride = args.gate.stride[1],
                          .y = args.y.row(t, first_head),
                          .y_stride = args.y.stride[0],
                          .scratch = shop.scratch + worker * kWorkerScratch};
    if (row.kind == RowKind::Decode) {
      shop.kernels.attend_decode(task);
    } else {
      shop.kernels.attend_prefill(task);
    }
  };
  const std::span<const StepRow> rows = shop.step.rows();
  const auto is_decode = [](const StepRow& row) { return row.kind == RowKind::Decode; };
  const std::int64_t decode_rows = std::count_if(rows.begin(), rows.end(), is_decode);
  const int items_a_token = kv_heads * parts;
  shop.team.run(decode_rows * items_a_token, [&](std::int64_t item, int worker) {
    const StepRow& row = rows[static_cast<std::size_t>(item / items_a_token)];
    const int which = static_cast<int>(item % items_a_token);
    if (!shop.step.is_padding(row)) attend(row, 0, 1, which / parts, which % parts, worker);
  });
  for (const StepRow& row : rows.subspan(static_cast<std::size_t>(decode_rows))) {
    if (shop.step.is_padding(row)) continue;
    const std::int64_t blocks = (row.tokens + kAttendTokens - 1) / kAttendTokens;
    // Last block first: it is the longest, so it must not be the one that is left over.
    shop.team.run(blocks * items_a_token, [&](std::int64_t item, int worker) {
      const auto first = static_cast<int>(blocks - 1 - item / items_a_token) * kAttendTokens;
      const int which = static_cast<int>(item % items_a_token);
      attend(row, first, std::min(kAttendTokens, row.tokens - first), which / parts, which % parts, worker);
    });
  }
  zero_padding(shop, args.y);
}

}  // namespace tandem::ops::cpu
