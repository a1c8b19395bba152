#include "ops/cuda/cuda_test_tools.h"

// The chunked gated delta rule on the device where its tiling could go wrong: lengths around multiples of a
// chunk, more chunks than stages, rows that continue, pools full of NaN, and the same bits in every run.

namespace tandem::ops::cuda {
namespace {

using namespace testing;

constexpr StepLimits kLimits{.max_tokens = 1500, .max_rows = 64, .max_context = 4096, .max_logit_rows = 16,
                             .slots = 40, .pages = 96, .vocab = 5000};
constexpr double kRounding = 4e-3;

// One layer on both backends: each call is a step of the mixer, whose requests go on from call to call.
class Layer {
 public:
  Layer(DeltaShape shape, std::uint64_t seed, float key_noise = 1.0f)
      : shape_(shape), random_(seed), key_noise_(key_noise), pair_(kLimits), pool_(kLimits.slots, shape), conv_(*pair_.cuda, pool_.conv()),
        state_(*pair_.cuda, pool_.state()), conv_weight_(*pair_.cuda, random_.floats(shape.channels() * kConvTaps, 0.4f)),
        a_log_(*pair_.cuda, random_.floats(shape.value_heads, 1.5f, -2.0f)), dt_bias_(*pair_.cuda, random_.floats(shape.value_heads)),
        norm_weight_(*pair_.cuda, random_.floats(kDeltaHeadDim, 0.2f, 1.0f)) {
    pair_.reserve();
    for (int i = 0; i < kLimits.slots; ++i) requests_.push_back({.slot = SlotId{i}, .pages = std::vector<PageId>(64)});
  }

  // Rows of the given lengths, the i-th of request i; decode rows first.
  void run(int decode_rows, const std::vector<int>& lengths, double bound = kRounding) {
    StepMaker maker;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      maker.add(requests_[i], static_cast<int>(i) < decode_rows ? RowKind::Decode : RowKind::Prefill, lengths[i]);
    const int tokens = maker.total_tokens();
    ASSERT_LE(tokens, kLimits.max_tokens);
    pair_.begin(maker.view());
    std::vector<bf16> inputs = random_.bf16s(std::int64_t{tokens} * shape_.projected_width());
    if (key_noise_ != 1.0f) make_keys_alike(inputs, tokens);
    Mirror<bf16> projected(*pair_.cuda, inputs);
    Mirror<bf16> y(*pair_.cuda, poison_bf16(tokens * shape_.value_width())), v(*pair_.cuda, y.host);
    Mirror<float> q(*pair_.cuda, std::vector<float>(tokens * shape_.key_width(), NAN)), k(*pair_.cuda, q.host);
    Mirror<float> beta(*pair_.cuda, std::vector<float>(tokens * shape_.value_heads, NAN)), decay(*pair_.cuda, beta.host);
    const auto mix = [&](Backend& backend, const bf16* p, DeltaParams params, DeltaState states, bf16* ys, float* qs, float* ks, bf16* vs,
                         float* bs, float* ds) {
      EXPECT_OK(backend.delta_mixer({.projected = dense(p, tokens, shape_.projected_width()), .shape = shape_, .params = params, .state = states,
                                     .y = dense(ys, tokens, shape_.value_heads, kDeltaHeadDim), .eps = 1e-6f,
                                     .q = dense(qs, tokens, shape_.key_heads, kDeltaHeadDim),
                                     .k = dense(ks, tokens, shape_.key_heads, kDeltaHeadDim),
                                     .v = dense(vs, tokens, shape_.value_heads, kDeltaHeadDim),
                                     .beta = dense(bs, tokens, shape_.value_heads), .decay = dense(ds, tokens, shape_.value_heads)}));
    };
    DeltaState on_device = pool_.view();
    on_device.conv = conv_.device, on_device.state = state_.device;
    const DeltaParams device_params{conv_weight_.device, a_log_.device, dt_bias_.device, norm_weight_.device};
    const std::vector<bf16> conv_before = conv_.pull();
    const std::vector<float> state_before = state_.pull();
    std::vector<bf16> first_answer;
    std::vector<float> first_state;
    for (int repeat = 0; repeat < 3; ++repeat) {
      conv_.host = conv_before, state_.host = state_before;
      conv_.push(), state_.push(), y.push(), v.push(), q.push(), k.push();
      mix(*pair_.cuda, projected.device, device_params, on_device, y.device, q.device, k.device, v.device, beta.device, decay.device);
      if (repeat == 0) {
        first_answer = y.pull(), first_state = state_.pull();
        continue;
      }
      EXPECT_TRUE(same_bits(y.pull(), first_answer)) << "repeat " << repeat;
      EXPECT_TRUE(same_bits(state_.pull(), first_state)) << "repeat " << repeat;
    }
    EXPECT_OK(pair_.cuda->end_step());
    mix(*pair_.reference, projected.host.data(), {conv_weight_.host.data(), a_log_.host.data(), dt_bias_.host.data(), norm_weight_.host.data()},
        pool_.view(), y.host.data(), q.host.data(), k.host.data(), v.host.data(), beta.host.data(), decay.host.data());
    EXPECT_OK(pair_.reference->end_step());
    EXPECT_LT(relative_error(first_answer, y.host), 1.5 * bound) << tokens << " tokens";
    EXPECT_LT(relative_error(first_state, pool_.state()), bound) << tokens << " tokens";
    EXPECT_TRUE(same_bits(conv_.pull(), pool_.conv())) << tokens << " tokens";
  }

 private:
  // All tokens have almost the first one's query and key: the triangular system is as ill-conditioned as it gets.
  void make_keys_alike(std::vector<bf16>& inputs, int tokens) {
    const int width = shape_.projected_width();
    for (int t = 1; t < tokens; ++t)
      for (int c = 0; c < 2 * shape_.key_width(); ++c) {
        bf16& x = inputs[static_cast<std::size_t>(t * width + c)];
        x = to_bf16(to_float(inputs[static_cast<std::size_t>(c)]) + key_noise_ * to_float(x));
      }
  }

  DeltaShape shape_;
  Random random_;
  float key_noise_;
  Pair pair_;
  StatePool pool_;
  Mirror<bf16> conv_;
  Mirror<float> state_, conv_weight_, a_log_, dt_bias_, norm_weight_;
  std::vector<Request> requests_;
};

TEST(CudaDeltaChunks, RowsOfEveryLengthAroundAChunkEqualTheReference) {
  for (const DeltaShape shape : {DeltaShape{2, 2}, DeltaShape{2, 4}, DeltaShape{2, 6}}) {
    SCOPED_TRACE(::testing::Message() << shape.key_heads << " key and " << shape.value_heads << " value heads");
    Layer layer(shape, 71);
    const std::vector<int> lengths = {1, 2, 3, 4, 15, 16, 17, 48, 63, 64, 65, 127, 128, 129, 200};
    for (int round = 0; round < 3; ++round) layer.run(0, lengths);  // from position 0, then from all sorts
  }
}

TEST(CudaDeltaChunks, ARowOfManyChunksEqualsTheReference) {
  Layer layer({2, 4}, 72);
  layer.run(0, {1007});
  layer.run(0, {320, 1, 641});
}

TEST(CudaDeltaChunks, DecodeRowsBesidePrefillRowsEqualTheReference) {
  Layer layer({2, 4}, 73);
  layer.run(0, {5, 70, 64, 1, 3});
  layer.run(3, {1, 1, 1, 90, 31, 200});
  layer.run(1, {1, 33, 64, 1, 1});
}

TEST(CudaDeltaChunks, KeysThatAreNearlyEqualStayAccurate) {
  // U, W and V' are bf16, and the state is a sum of rows that mostly cancel along one direction: a simulation in
  // double precision but for these roundings gave 1.4 times the error of random keys, the device up to 2.5 times.
  Layer layer({2, 4}, 74, 0.02f);
  layer.run(0, {64, 150, 300}, 3 * kRounding);
  layer.run(0, {64, 64, 1}, 3 * kRounding);
}

TEST(CudaDeltaDecode, StepsOfAnyNumberOfRowsEqualTheReference) {
  Layer layer({16, 32}, 75);
  layer.run(0, std::vector<int>(40, 2));
  for (const int rows : {1, 2, 3, 4, 5, 8, 9, 17, 40}) layer.run(rows, std::vector<int>(static_cast<std::size_t>(rows), 1));
}

}  // namespace
}  // namespace tandem::ops::cuda
