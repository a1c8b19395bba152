#include "ops/cuda/cuda_test_tools.h"

// Sampling on the device where settings or vocabularies are extreme: what is chosen and reported equals the reference.

namespace tandem::ops::cuda {
namespace {

using namespace testing;

// Logit rows of one step over `vocab` ids, each on a slot of its own, sampled on both backends.
class Sampling {
 public:
  Sampling(int vocab, int rows, std::uint64_t seed, int with_token = 0)
      : vocab_(vocab), with_token_(with_token > 0 ? with_token : vocab), rows_(rows), random_(seed),
        limits_{.max_tokens = 512, .max_rows = 2 * rows, .max_context = 512, .max_logit_rows = rows, .slots = rows, .pages = 8 * rows, .vocab = vocab},
        pair_(limits_) {
    pair_.reserve();
    for (int i = 0; i < rows; ++i) {
      Request r{.slot = SlotId{rows - 1 - i}};
      for (int p = 0; p < 8; ++p) r.pages.push_back(PageId{8 * i + p});
      requests_.push_back(std::move(r));
    }
  }

  // Binds new settings to the slots, as if they had been dropped and given away.
  void bind(std::vector<SamplingParams> params) {
    params_ = std::move(params);
    step_ = 0;
    for (Request& r : requests_) r.length = 0;
  }

  // One chunk of every prompt that asks for no logits.
  void read_prompt(int tokens, TokenId first_id) {
    StepMaker maker;
    for (std::size_t i = 0; i < requests_.size(); ++i) maker.add(requests_[i], RowKind::Prefill, tokens, first_settings(i), first_id);
    pair_.begin(maker.view());
    for (Backend* backend : {static_cast<Backend*>(pair_.cuda.get()), pair_.reference.get()}) {
      EXPECT_OK(backend->note_prompt());
      EXPECT_OK(backend->wait(backend->end_step().value()));  // staging buffers alternate
    }
  }

  // A decode step, or the step of each prompt's only token, with these logits [rows, vocab].
  std::vector<TokenChoice> sample(std::vector<float> logits, int top_logprobs, LogprobsMode mode, int groups = 1) {
    StepMaker maker;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const bool first = requests_[i].length == 0;
      maker.add(requests_[i], first ? RowKind::Prefill : RowKind::Decode, 1, first_settings(i), first ? 0 : kLastSampled);
      maker.add_logits({.token = static_cast<std::int32_t>(i), .slot = requests_[i].slot, .position = requests_[i].length, .step_index = step_,
                        .top_logprobs = top_logprobs});
    }
    ++step_;
    pair_.begin(maker.view());
    Mirror<float> on_device(*pair_.cuda, logits);
    Mirror<std::int32_t> ids(*pair_.cuda, std::vector<std::int32_t>(static_cast<std::size_t>(rows_), -7));
    EXPECT_OK(pair_.cuda->note_prompt());
    EXPECT_OK(pair_.reference->note_prompt());
    for (int begin = 0, group = (rows_ + groups - 1) / groups; begin < rows_; begin += group) {
      const int count = std::min(group, rows_ - begin);
      EXPECT_OK(pair_.cuda->sample({dense(on_device.device + std::int64_t{begin} * vocab_, count, vocab_), ids.device, begin, with_token_, mode}));
      EXPECT_OK(pair_.reference->sample({dense(logits.data() + std::int64_t{begin} * vocab_, count, vocab_), ids.host.data(), begin, with_token_, mode}));
    }
    EXPECT_OK(pair_.cuda->store_sampled(ids.device));
    EXPECT_OK(pair_.reference->store_sampled(ids.host.data()));
    const auto ticket = pair_.cuda->end_step(), reference_ticket = pair_.reference->end_step();
    const auto got = pair_.cuda->wait(*ticket).value();
    const auto want = pair_.reference->wait(*reference_ticket).value();
    EXPECT_EQ(got.size(), want.size());
    EXPECT_EQ(ids.pull(), ids.host);
    for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
      SCOPED_TRACE(::testing::Message() << "row " << i << " of step " << step_);
      EXPECT_EQ(got[i].non_finite, want[i].non_finite);
      EXPECT_EQ(got[i].id, want[i].id);
      if (want[i].non_finite != 0) continue;
      EXPECT_EQ(got[i].logprob, want[i].logprob);
      EXPECT_EQ(got[i].top_count, want[i].top_count);
      for (std::size_t n = 0; n < static_cast<std::size_t>(want[i].top_count); ++n) {
        EXPECT_EQ(got[i].top_ids[n], want[i].top_ids[n]) << n;
        EXPECT_EQ(got[i].top_logprobs[n], want[i].top_logprobs[n]) << n;
      }
    }
    return {got.begin(), got.end()};
  }

  // As a head gives them: rounded to bf16, so that there are ties.
  std::vector<float> logits(float spread = 2.5f) {
    auto values = random_.floats(std::int64_t{rows_} * vocab_, spread);
    for (float& l : values) l = round_bf16(l);
    return values;
  }
  Random& random() { return random_; }

 private:
  const SamplingParams* first_settings(std::size_t i) const { return requests_[i].length == 0 ? &params_[i] : nullptr; }

  int vocab_, with_token_, rows_, step_ = 0;
  Random random_;
  StepLimits limits_;
  Pair pair_;
  std::vector<Request> requests_;
  std::vector<SamplingParams> params_;
};

std::vector<SamplingParams> extremes(int vocab) {
  std::vector<SamplingParams> all = {
      {.temperature = 0.0f},
      {.temperature = 1.0f, .seed = ~0ull},
      {.temperature = 2.0f, .top_k = 1},
      {.temperature = 1.1e-5f, .seed = 1},
      {.temperature = 1.0f, .top_k = vocab},
      {.temperature = 1.0f, .top_p = 1e-6f},
      {.temperature = 1.5f, .top_p = 0.999999f, .seed = 5},
      {.temperature = 1.0f, .min_p = 1.0f},
      {.temperature = 0.7f, .top_k = 3, .top_p = 0.5f, .min_p = 0.3f, .seed = 6},
      {.temperature = 0.9f, .repetition_penalty = 100.0f, .seed = 7},
      {.temperature = 0.9f, .repetition_penalty = 0.01f, .seed = 8},
      {.temperature = 0.0f, .presence_penalty = 2.0f, .frequency_penalty = 2.0f},
      {.temperature = 1.0f, .presence_penalty = -2.0f, .frequency_penalty = -2.0f, .seed = 9},
  };
  SamplingParams biased{.temperature = 1.0f, .seed = 10, .min_tokens = 2};
  for (int i = 0; i < std::min(kMaxLogitBias, vocab); ++i) biased.logit_bias.emplace_back(i, i % 2 ? 100.0f : -100.0f);
  for (int i = 0; i < std::min(kMaxStopIds, vocab - 1); ++i) biased.stop_ids.push_back(i);
  all.push_back(biased);
  biased.temperature = 0.0f, biased.repetition_penalty = 1.3f;
  all.push_back(biased);
  return all;
}

TEST(CudaSampleEdges, ExtremeSettingsGiveTheReferencesTokensInVocabulariesOfAnySize) {
  // Fewer ids than a cluster has blocks, as many, around a block's threads, and the family's.
  for (const int vocab : {2, 5, 8, 9, 513, 4096, 248320}) {
    SCOPED_TRACE(::testing::Message() << "vocabulary of " << vocab);
    const auto params = extremes(vocab);
    Sampling sampling(vocab, static_cast<int>(params.size()), 200u + static_cast<unsigned>(vocab), vocab > 100 ? vocab - 3 : vocab);
    const int steps = vocab > 100000 ? 2 : 4;
    for (const LogprobsMode mode : {LogprobsMode::Raw, LogprobsMode::Processed}) {
      sampling.bind(params);
      for (int step = 0; step < steps; ++step) sampling.sample(sampling.logits(step == 1 ? 0.01f : 3.0f), step % 2 ? kMaxTopLogprobs : 0, mode, 1 + step % 3);
    }
  }
}

TEST(CudaSampleEdges, EqualLogitsGoToTheSmallestId) {
  Sampling sampling(700, 4, 210);
  sampling.bind({{.temperature = 0.0f}, {.temperature = 1.0f, .top_k = 1}, {.temperature = 1.0f, .top_p = 1e-9f}, {.temperature = 0.0f}});
  for (const auto& choice : sampling.sample(std::vector<float>(4 * 700, 1.5f), 20, LogprobsMode::Raw)) EXPECT_EQ(choice.id, 0);
}

TEST(CudaSampleEdges, SettingsThatMaskEveryIdGiveNoToken) {
  const int vocab = 64;
  std::vector<SamplingParams> params = {{.temperature = 0.0f, .min_tokens = 2}, {.temperature = 1.0f, .seed = 3, .min_tokens = 1},
                                        {.temperature = 1.0f, .top_k = 5, .top_p = 0.5f, .min_p = 0.1f, .min_tokens = 1}, {.temperature = 1.0f}};
  for (std::size_t i = 0; i + 1 < params.size(); ++i)
    for (int id = 0; id < vocab; ++id) params[i].stop_ids.push_back(id);
  for (const LogprobsMode mode : {LogprobsMode::Raw, LogprobsMode::Processed}) {
    Sampling sampling(vocab, 4, 211);
    sampling.bind(params);
    const auto first = sampling.sample(sampling.logits(), 3, mode);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].non_finite, i + 1 < params.size() ? 1 : 0) << i;
    sampling.sample(sampling.logits(), 3, mode);  // the second row may choose again
  }
}

TEST(CudaSampleEdges, PenaltiesSeeEveryChunkOfThePromptAndNothingOfTheSlotsLastRequest) {
  Sampling sampling(300, 3, 212);
  const SamplingParams penalised{.temperature = 0.0f, .repetition_penalty = 1.8f, .presence_penalty = 0.4f, .frequency_penalty = 0.3f};
  for (int life = 0; life < 3; ++life) {
    sampling.bind({penalised, life == 1 ? SamplingParams{.temperature = 0.8f, .seed = 4} : penalised, penalised});
    for (int chunk = 0; chunk < 3; ++chunk) sampling.read_prompt(64, 20 * chunk + 70 * life);
    for (int step = 0; step < 12; ++step) sampling.sample(sampling.logits(0.4f), 5, LogprobsMode::Processed);
  }
}

}  // namespace
}  // namespace tandem::ops::cuda
