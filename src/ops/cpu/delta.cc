#include <algorithm>
#include <cmath>

#include "ops/cpu/operators.h"

// Linear attention is independent per key head (with the value heads that read it), so every stage is shared
// out by row and key head, and the stages of one head can run one after another on one thread.

namespace tandem::ops::cpu {
namespace {

constexpr int kDim = kDeltaHeadDim;

void prepare_head(const Shop& shop, const DeltaPrepareArgs& args, const StepRow& row, int key_head) {
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(kDim));
  const DeltaShape& shape = args.shape;
  const int group = shape.value_heads / shape.key_heads;
  const std::int64_t t0 = row.token_begin;
  const std::int64_t channels = shape.channels();
  ConvTask conv{.u_stride = args.projected.stride[0], .tokens = row.tokens, .fresh = row.base_pos == 0};
  const auto at_channel = [&](std::int64_t channel, int count) {
    conv.u = args.projected.row(t0) + channel;
    conv.channels = count;
    conv.window = args.state.conv + row.slot.value * args.state.conv_stride + channel * kConvWindow;
    conv.weight = args.params.conv_weight + channel * kConvTaps;
  };
  for (const bool is_key : {false, true}) {
    const View<float, 3>& out = is_key ? args.k : args.q;
    at_channel((is_key ? shape.key_width() : 0) + key_head * kDim, kDim);
    conv.out = out.row(t0, key_head);
    conv.out_stride = out.stride[0];
    shop.kernels.convolve(conv);
    for (int i = 0; i < row.tokens; ++i) {
      shop.kernels.l2_normalize(out.row(t0 + i, key_head), is_key ? 1.0f : query_scale);
    }
  }
  at_channel(2 * shape.key_width() + std::int64_t{key_head} * group * kDim, group * kDim);
  conv.out = nullptr;
  conv.out_bf16 = args.v.row(t0, key_head * group);
  conv.out_stride = args.v.stride[0];
  shop.kernels.convolve(conv);

  const bf16* b = args.projected.row(t0) + channels + shape.value_width();
  for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
    shop.kernels.delta_gates({.b = b + h,
                              .a = b + shape.value_heads + h,
                              .in_stride = args.projected.stride[0],
                              .tokens = row.tokens,
                              .a_log = args.params.a_log[h],
                              .dt_bias = args.params.dt_bias[h],
                              .beta = args.beta.row(t0) + h,
                              .decay = args.decay.row(t0) + h,
                              .out_stride = args.beta.stride[0]});
  }
}

void rule_head(const Shop& shop, const DeltaRuleArgs& args, const StepRow& row, int value_head, int worker) {
  const int group = args.shape.value_heads / args.shape.key_heads;
  const std::int64_t t = row.token_begin;
  const DeltaTask task{.q = args.q.row(t, value_head / group),
                       .k = args.k.row(t, value_head / group),
                       .qk_stride = args.q.stride[0],
                       .v = args.v.row(t, value_head),
                       .v_stride = args.v.stride[0],
                       .beta = args.beta.row(t) + value_head,
                       .decay = args.decay.row(t) + value_head,
                       .head_stride = args.beta.stride[0],
                       .tokens = row.tokens,
                       .first_position = row.base_pos,
                       .state = args.state.state + row.slot.value * args.state.state_stride +
                                std::int64_t{value_head} * kDim * kDim,
                       .fresh = row.base_pos == 0,
                       .o = args.o.row(t, value_head),
                       .o_stride = args.o.stride[0],
                       .scratch = shop.scratch + worker * kWorkerScratch};
  if (row.kind == RowKind::Decode) {
    shop.kernels.delta_recurrence(task);
  } else {
    shop.kernels.delta_prompt(task);
  }
}

void zero_rows(const StepRow& row, View<bf16, 3> y) {
  for (int i = 0; i < row.tokens; ++i) {
    for (std::int64_t j = 0; j < y.size(1); ++j) {
      bf16* at = y.row(row.token_begin + i, j);
      std::fill(at, at + y.size(2), bf16{});
    }
  }
}

// work(row, head, worker) for every head of every row that is not padding.
template <class Work>
void for_heads(const Shop& shop, int heads, const Work& work) {
  const std::span<const StepRow> rows = shop.step.rows();
  shop.team.run(std::ssize(rows) * heads, [&](std::int64_t item, int worker) {
    const StepRow& row = rows[static_cast<std::size_t>(item / heads)];
    if (!shop.step.is_padding(row)) work(row, static_cast<int>(item % heads), worker);
  });
}

}  // namespace

void delta_prepare(const Shop& shop, const DeltaPrepareArgs& args) {
  for_heads(shop, args.shape.key_heads,
            [&](const StepRow& row, int head, int) { prepare_head(shop, args, row, head); });
}

void delta_rule(const Shop& shop, const DeltaRuleArgs& args) {
  for_heads(shop, args.shape.value_heads,
            [&](const StepRow& row, int head, int worker) { rule_head(shop, args, row, head, worker); });
  for (const StepRow& row : shop.step.rows()) {
    if (shop.step.is_padding(row)) zero_rows(row, args.o);
  }
}

void gated_norm(const Shop& shop, const GatedNormArgs& args) {
  constexpr std::int64_t kTokensAnItem = 8;
  const std::int64_t tokens = args.o.size(0);
  shop.team.run((tokens + kTokensAnItem - 1) / kTokensAnItem, [&](std::int64_t item, int) {
    const std::int64_t end = std::min((item + 1) * kTokensAnItem, tokens);
    for (std::int64_t t = item * kTokensAnItem; t < end; ++t) {
      for (std::int64_t h = 0; h < args.o.size(1); ++h) {
        shop.kernels.gated_norm(args.o.row(t, h), args.z.row(t, h), args.weight, args.eps, args.y.row(t, h));
      }
    }
  });
}

void delta_mixer(const Shop& shop, const DeltaMixerArgs& args) {
  const DeltaShape& shape = args.shape;
  const int group = shape.value_heads / shape.key_heads;
  const DeltaPrepareArgs prepare{.projected = args.projected,
                                 .shape = shape,
                                 .params = args.params,
                                 .state = args.state,
                                 .q = args.q,
                                 .k = args.k,
                                 .v = args.v,
                                 .beta = args.beta,
                                 .decay = args.decay};
  const DeltaRuleArgs rule{.q = args.q,
                           .k = args.k,
                           .v = args.v,
                           .beta = args.beta,
                           .decay = args.decay,
                           .shape = shape,
                           .state = args.state,
                           .o = args.y};
  for_heads(shop, shape.key_heads, [&](const StepRow& row, int key_head, int worker) {
    prepare_head(shop, prepare, row, key_head);
    for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
      rule_head(shop, rule, row, h, worker);
      for (int i = 0; i < row.tokens; ++i) {
        const std::int64_t t = row.token_begin + i;
        const bf16* z = args.projected.row(t) + shape.channels() + h * kDim;
        bf16* y = args.y.row(t, h);
        shop.kernels.gated_norm(y, z, args.params.norm_weight, args.eps, y);
      }
    }
  });
  for (const StepRow& row : shop.step.rows()) {
    if (shop.step.is_padding(row)) zero_rows(row, args.y);
  }
}

}  // namespace tandem::ops::cpu
