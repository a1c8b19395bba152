#include "ops/cuda/cuda_test_tools.h"

// Attention and the delta rule at the edges of their shapes: rows that end or begin at a page's border, contexts up to the
// longest, every number of query heads a kv head, padding rows on the trash slot, heads in unusual proportion.

namespace tandem::ops::cuda {
namespace {

using namespace testing;

constexpr StepLimits kLimits{.max_tokens = 2300, .max_rows = 80, .max_context = 2048, .max_logit_rows = 16,
                             .slots = 72, .pages = 300, .vocab = 1000};
constexpr double kRounding = 4e-3;

struct RowPlan {
  int request;
  RowKind kind;
  int tokens;
};

// The step's rows on padding: one decode row on the trash slot and the scratch page each.
Request padding() { return {.slot = SlotId{kLimits.slots}, .pages = {PageId{kLimits.pages}}}; }

// One full-attention layer on both backends; requests go on from call to call in pages that start as NaN.
class AttentionLayer {
 public:
  AttentionLayer(int query_heads, int kv_heads, std::uint64_t seed)
      : heads_(query_heads), kv_heads_(kv_heads), random_(seed), pair_(kLimits), pool_(kLimits.pages, kv_heads), device_pool_(*pair_.cuda, pool_.data()),
        q_norm_(*pair_.cuda, random_.floats(kHeadDim, 0.3f)), k_norm_(*pair_.cuda, random_.floats(kHeadDim, 0.3f)) {
    pair_.reserve();
    slots_ = random_.shuffled(kLimits.slots), pages_ = random_.shuffled(kLimits.pages);
  }

  // A request with room for `tokens`; its number.
  int request(int tokens) {
    Request r{.slot = SlotId{slots_.back()}};
    slots_.pop_back();
    for (int i = 0; i < (tokens + kPageTokens - 1) / kPageTokens; ++i) {
      r.pages.push_back(PageId{pages_.back()});
      pages_.pop_back();
    }
    requests_.push_back(std::move(r));
    return static_cast<int>(requests_.size()) - 1;
  }

  // Rows in order, decode rows first; `padding_rows` more decode rows follow those.
  void run(const std::vector<RowPlan>& rows, int padding_rows = 0) {
    StepMaker maker;
    std::vector<bool> counts;  // whether a token's answer is compared
    const auto add = [&](Request& request, const RowPlan& row, bool real) {
      maker.add(request, row.kind, row.tokens);
      counts.insert(counts.end(), static_cast<std::size_t>(row.tokens), real);
    };
    std::size_t next = 0;
    for (; next < rows.size() && rows[next].kind == RowKind::Decode; ++next) add(requests_[static_cast<std::size_t>(rows[next].request)], rows[next], true);
    for (int i = 0; i < padding_rows; ++i) {
      Request pad = padding();
      add(pad, {0, RowKind::Decode, 1}, false);
    }
    for (; next < rows.size(); ++next) add(requests_[static_cast<std::size_t>(rows[next].request)], rows[next], true);
    const int tokens = maker.total_tokens();
    ASSERT_LE(tokens, kLimits.max_tokens);
    pair_.begin(maker.view());
    const int width = 2 * (heads_ + kv_heads_) * kHeadDim, out = heads_ * kHeadDim;
    Mirror<bf16> projected(*pair_.cuda, random_.bf16s(std::int64_t{tokens} * width));
    Mirror<bf16> q(*pair_.cuda, poison_bf16(std::int64_t{tokens} * out)), y(*pair_.cuda, poison_bf16(std::int64_t{tokens} * out));
    const auto attend = [&](Backend& backend, bf16* p, const float* qn, const float* kn, bf16* qs, bf16* ys, KvPages kv) {
      EXPECT_OK(backend.attention_prepare({.projected = dense(p, tokens, width), .q_norm = qn, .k_norm = kn, .q = dense(qs, tokens, heads_, kHeadDim),
                                           .kv = kv, .eps = 1e-6f, .rope_theta = 1e7f}));
      const View<const bf16, 3> gate{p + kHeadDim, {tokens, heads_, kHeadDim}, {width, 2 * kHeadDim, 1}};
      EXPECT_OK(backend.attention({.q = dense<const bf16>(qs, tokens, heads_, kHeadDim), .gate = gate, .kv = kv, .y = dense(ys, tokens, heads_, kHeadDim)}));
      EXPECT_OK(backend.end_step());
    };
    KvPages on_device = pool_.view();
    on_device.base = device_pool_.device;
    attend(*pair_.cuda, projected.device, q_norm_.device, k_norm_.device, q.device, y.device, on_device);
    attend(*pair_.reference, projected.host.data(), q_norm_.host.data(), k_norm_.host.data(), q.host.data(), y.host.data(), pool_.view());
    const std::vector<bf16> got = y.pull();
    // Row by row, so that one bad row is not lost among good ones.
    int at = 0;
    for (const StepRow& row : maker.rows()) {
      const auto part = [&](const std::vector<bf16>& of) {
        return std::vector<bf16>(of.begin() + std::int64_t{at} * out, of.begin() + std::int64_t{at + row.tokens} * out);
      };
      if (counts[static_cast<std::size_t>(at)]) {
        EXPECT_LT(relative_error(part(got), part(y.host)), 1.5 * kRounding) << row.tokens << " tokens from " << row.base_pos;
      }
      at += row.tokens;
    }
    // The scratch page is anyone's.
    std::vector<bf16> device_pages = device_pool_.pull(), host_pages = pool_.data();
    const auto real = static_cast<std::size_t>(kLimits.pages * pool_.view().page_stride);
    device_pages.resize(real), host_pages.resize(real);
    EXPECT_LT(relative_error(device_pages, host_pages), kRounding / 2);
  }

 private:
  int heads_, kv_heads_;
  Random random_;
  Pair pair_;
  KvPool pool_;
  Mirror<bf16> device_pool_;
  Mirror<float> q_norm_, k_norm_;
  std::vector<int> slots_, pages_;
  std::vector<Request> requests_;
};

constexpr auto kDecode = RowKind::Decode;
constexpr auto kPrefill = RowKind::Prefill;

TEST(CudaAttentionEdges, RowsAtThePagesBordersEqualTheReferenceForEveryGroupOfHeads) {
  for (int group = 1; group <= 8; ++group) {
    SCOPED_TRACE(::testing::Message() << group << " query heads a kv head");
    AttentionLayer layer(2 * group, 2, 100u + static_cast<unsigned>(group));
    const std::vector<int> lengths = {1, 63, 64, 65, 127, 128, 129, 191};
    std::vector<RowPlan> first, one_more, chunks, last;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const int r = layer.request(lengths[i] + 260);
      first.push_back({r, kPrefill, lengths[i]});
      one_more.push_back({r, kDecode, 1});  // at 1, 63, 64, ...: the page's last place, the next one's first
      chunks.push_back({r, kPrefill, i % 2 ? 64 : 1 + 31 * static_cast<int>(i)});
      last.push_back({r, kDecode, 1});
    }
    layer.run(first);
    layer.run(one_more);
    layer.run(chunks);
    layer.run(last);
  }
}

TEST(CudaAttentionEdges, TheLongestContextEqualsTheReferenceUpToItsLastToken) {
  AttentionLayer layer(4, 1, 121);
  const int whole = layer.request(kLimits.max_context), grown = layer.request(kLimits.max_context);
  layer.run({{whole, kPrefill, kLimits.max_context - 1}});
  layer.run({{whole, kDecode, 1}, {grown, kPrefill, 1}});
  layer.run({{grown, kPrefill, 1983}});
  layer.run({{grown, kPrefill, 63}});  // ends one before the last page's end
  layer.run({{grown, kDecode, 1}});
}

TEST(CudaAttentionEdges, AnyNumberOfDecodeRowsBesidePaddingAndPrefillEqualsTheReference) {
  AttentionLayer layer(8, 4, 122);
  std::vector<int> all;
  std::vector<RowPlan> first;
  for (int i = 0; i < 70; ++i) {
    all.push_back(layer.request(150));
    first.push_back({all.back(), kPrefill, 1 + i % 33});
  }
  layer.run(first);
  // Around where the splits of a row's pages end: 132 blocks over 4 kv heads.
  for (const int rows : {1, 2, 15, 16, 17, 32, 33, 34, 69}) {
    std::vector<RowPlan> step;
    for (int i = 0; i < rows; ++i) step.push_back({all[static_cast<std::size_t>(i)], kDecode, 1});
    step.push_back({all[69], kPrefill, 3});
    layer.run(step, rows % 5);
  }
}

// One linear-attention layer; each call is a step whose decode rows may be followed by padding rows.
class DeltaLayer {
 public:
  DeltaLayer(DeltaShape shape, std::uint64_t seed)
      : shape_(shape), random_(seed), pair_(kLimits), pool_(kLimits.slots, shape), conv_(*pair_.cuda, pool_.conv()), state_(*pair_.cuda, pool_.state()),
        conv_weight_(*pair_.cuda, random_.floats(shape.channels() * kConvTaps, 0.4f)), a_log_(*pair_.cuda, random_.floats(shape.value_heads, 1.5f, -2.0f)),
        dt_bias_(*pair_.cuda, random_.floats(shape.value_heads)), norm_weight_(*pair_.cuda, random_.floats(kDeltaHeadDim, 0.2f, 1.0f)) {
    pair_.reserve();
    const auto slots = random_.shuffled(kLimits.slots);
    for (const int slot : slots) requests_.push_back({.slot = SlotId{slot}, .pages = std::vector<PageId>(64)});
  }

  void run(int decode_rows, const std::vector<int>& lengths, int padding_rows = 0) {
    StepMaker maker;
    for (int i = 0; i < decode_rows; ++i) maker.add(requests_[static_cast<std::size_t>(i)], kDecode, 1);
    for (int i = 0; i < padding_rows; ++i) {
      Request pad = padding();
      maker.add(pad, kDecode, 1);
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) maker.add(requests_[static_cast<std::size_t>(decode_rows) + i], kPrefill, lengths[i]);
    const int tokens = maker.total_tokens(), width = shape_.projected_width();
    ASSERT_LE(tokens, kLimits.max_tokens);
    pair_.begin(maker.view());
    Mirror<bf16> projected(*pair_.cuda, random_.bf16s(std::int64_t{tokens} * width));
    Mirror<bf16> y(*pair_.cuda, poison_bf16(std::int64_t{tokens} * shape_.value_width())), v(*pair_.cuda, y.host);
    Mirror<float> q(*pair_.cuda, std::vector<float>(static_cast<std::size_t>(tokens * shape_.key_width()), NAN)), k(*pair_.cuda, q.host);
    Mirror<float> beta(*pair_.cuda, std::vector<float>(static_cast<std::size_t>(tokens * shape_.value_heads), NAN)), decay(*pair_.cuda, beta.host);
    const auto mix = [&](Backend& backend, const bf16* p, DeltaParams params, DeltaState states, bf16* ys, float* qs, float* ks, bf16* vs, float* bs,
                         float* ds) {
      EXPECT_OK(backend.delta_mixer({.projected = dense(p, tokens, width), .shape = shape_, .params = params, .state = states,
                                     .y = dense(ys, tokens, shape_.value_heads, kDeltaHeadDim), .eps = 1e-6f,
                                     .q = dense(qs, tokens, shape_.key_heads, kDeltaHeadDim), .k = dense(ks, tokens, shape_.key_heads, kDeltaHeadDim),
                                     .v = dense(vs, tokens, shape_.value_heads, kDeltaHeadDim), .beta = dense(bs, tokens, shape_.value_heads),
                                     .decay = dense(ds, tokens, shape_.value_heads)}));
      EXPECT_OK(backend.end_step());
    };
    DeltaState on_device = pool_.view();
    on_device.conv = conv_.device, on_device.state = state_.device;
    mix(*pair_.cuda, projected.device, {conv_weight_.device, a_log_.device, dt_bias_.device, norm_weight_.device}, on_device, y.device, q.device, k.device,
        v.device, beta.device, decay.device);
    mix(*pair_.reference, projected.host.data(), {conv_weight_.host.data(), a_log_.host.data(), dt_bias_.host.data(), norm_weight_.host.data()}, pool_.view(),
        y.host.data(), q.host.data(), k.host.data(), v.host.data(), beta.host.data(), decay.host.data());
    const std::vector<bf16> got = y.pull(), conv = conv_.pull();
    const std::vector<float> states = state_.pull();
    const auto slice = [](const auto& of, std::int64_t begin, std::int64_t count) {
      return std::vector(of.begin() + begin, of.begin() + begin + count);
    };
    const DeltaState view = pool_.view();
    for (const StepRow& row : maker.rows()) {
      if (row.slot.value == kLimits.slots) continue;
      SCOPED_TRACE(::testing::Message() << row.tokens << " tokens from " << row.base_pos);
      const std::int64_t out = shape_.value_width(), at = row.token_begin * out, count = row.tokens * out;
      EXPECT_LT(relative_error(slice(got, at, count), slice(y.host, at, count)), 2 * kRounding);
      const std::int64_t state_at = row.slot.value * view.state_stride, conv_at = row.slot.value * view.conv_stride;
      EXPECT_LT(relative_error(slice(states, state_at, view.state_stride), slice(pool_.state(), state_at, view.state_stride)), 1.5 * kRounding);
      EXPECT_TRUE(same_bits(slice(conv, conv_at, view.conv_stride), slice(pool_.conv(), conv_at, view.conv_stride)));
    }
  }

 private:
  DeltaShape shape_;
  Random random_;
  Pair pair_;
  StatePool pool_;
  Mirror<bf16> conv_;
  Mirror<float> state_, conv_weight_, a_log_, dt_bias_, norm_weight_;
  std::vector<Request> requests_;
};

// Every shape that start-up lets through: up to 8 value heads a key head.
TEST(CudaDeltaEdges, ValueHeadsInAnyProportionToKeyHeadsEqualTheReference) {
  for (const DeltaShape shape : {DeltaShape{2, 8}, DeltaShape{2, 10}, DeltaShape{1, 6}, DeltaShape{2, 14}, DeltaShape{1, 8}, DeltaShape{16, 16}, DeltaShape{16, 48}}) {
    SCOPED_TRACE(::testing::Message() << shape.key_heads << " key and " << shape.value_heads << " value heads");
    DeltaLayer layer(shape, 130u + static_cast<unsigned>(shape.value_heads));
    layer.run(0, {1, 2, 3, 64, 65, 5, 1, 1});
    for (const int rows : {1, 3, 8}) layer.run(rows, {2, 33});
  }
}

TEST(CudaDeltaEdges, PaddingRowsOnTheTrashSlotChangeNoOtherRow) {
  for (const DeltaShape shape : {DeltaShape{4, 8}, DeltaShape{16, 32}}) {
    SCOPED_TRACE(::testing::Message() << shape.key_heads << " key and " << shape.value_heads << " value heads");
    DeltaLayer layer(shape, 140u + static_cast<unsigned>(shape.value_heads));
    layer.run(0, std::vector<int>(40, 2));
    for (const auto [rows, pads] : {std::pair{1, 7}, {2, 1}, {7, 9}, {33, 7}}) layer.run(rows, {1, 70}, pads);
  }
}

// Decode rows that begin a request: position 0 reads neither window nor state, which are NaN.
TEST(CudaDeltaEdges, ADecodeRowAtPositionZeroReadsNothingOfItsSlot) {
  for (const int rows : {1, 3, 6, 40}) {
    DeltaLayer layer({16, 32}, 150u + static_cast<unsigned>(rows));
    layer.run(rows, {});
    layer.run(rows, {1});
  }
}

}  // namespace
}  // namespace tandem::ops::cuda
