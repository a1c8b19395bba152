#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/cpu/backend.h"
#include "ops/reference/backend.h"
#include "ops/test_tools.h"

// Sampling on both host backends: every rule on each, and each choice equal bit for bit.

namespace tandem::ops {
namespace {

using testing::Random;
using testing::Request;
using testing::StepMaker;

constexpr int kVocab = 300;  // rows of the head
constexpr StepLimits kLimits{.max_tokens = 64,
                             .max_rows = 8,
                             .max_context = 256,
                             .max_logit_rows = 8,
                             .slots = 4,
                             .pages = 16,
                             .vocab = kVocab};

// One request that is sampled again and again.
class Sampler {
 public:
  explicit Sampler(std::unique_ptr<Backend> backend, StepLimits limits = kLimits)
      : backend_(std::move(backend)), vocab_(limits.vocab) {
    EXPECT_TRUE(backend_->reserve(limits));
  }

  void start(const SamplingParams& params, const std::vector<TokenId>& prompt = {0}) {
    request_ = {SlotId{2}, {PageId{0}, PageId{1}, PageId{2}, PageId{3}}, 0};
    generated_ = 0;
    StepMaker maker;
    maker.add(request_, RowKind::Prefill, static_cast<int>(prompt.size()), &params);
    maker.tokens() = prompt;
    EXPECT_TRUE(backend_->begin_step(maker.view()));
    EXPECT_TRUE(backend_->note_prompt());
    EXPECT_TRUE(backend_->end_step());
  }

  struct Options {
    int vocab = kVocab;
    LogprobsMode mode = LogprobsMode::Raw;
    int top_logprobs = -1;
    TokenId target = -1;
    std::int64_t position = -1;  // -1: the request's own
  };
  TokenChoice next(std::vector<float> logits, const Options& options) {
    Request here = request_;
    StepMaker maker;
    maker.add(here, RowKind::Decode, 1, nullptr, kLastSampled);
    maker.add_logits({.token = 0,
                      .slot = request_.slot,
                      .position = options.position >= 0 ? options.position : request_.length + generated_,
                      .step_index = generated_,
                      .target = options.target,
                      .top_logprobs = options.top_logprobs});
    EXPECT_TRUE(backend_->begin_step(maker.view()));
    std::int32_t id = -5;
    EXPECT_TRUE(backend_->sample({.logits = dense(logits.data(), 1, vocab_),
                                  .ids = &id,
                                  .vocab = options.vocab,
                                  .mode = options.mode}));
    EXPECT_TRUE(backend_->store_sampled(&id));
    const TokenChoice choice = backend_->wait(backend_->end_step().value()).value()[0];
    EXPECT_EQ(choice.id, id);
    if (options.target < 0) ++generated_;
    return choice;
  }
  TokenChoice next(const std::vector<float>& logits) { return next(logits, Options{}); }

 private:
  std::unique_ptr<Backend> backend_;
  int vocab_;
  Request request_;
  int generated_ = 0;
};

enum class Kind { Reference, Cpu };
std::unique_ptr<Backend> make(Kind kind) {
  return kind == Kind::Reference ? make_reference_backend() : make_cpu_backend({.threads = 2});
}

class Sampling : public ::testing::TestWithParam<Kind> {
 protected:
  Sampler sampler_{make(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Backend, Sampling, ::testing::Values(Kind::Reference, Kind::Cpu),
                         [](const auto& kind) {
                           return kind.param == Kind::Reference ? "reference" : "cpu";
                         });

std::vector<float> flat(float value = 0.0f) { return std::vector<float>(kVocab, value); }

TEST_P(Sampling, GreedyTakesTheLargestAndTheSmallestIdOfEquals) {
  sampler_.start({.temperature = 0.0f});
  auto logits = flat(-1.0f);
  logits[250] = logits[17] = logits[299] = 3.0f;
  EXPECT_EQ(sampler_.next(logits).id, 17);
  logits[299] = 3.5f;
  EXPECT_EQ(sampler_.next(logits).id, 299);
}

TEST_P(Sampling, IdsWithoutATokenAreNeverChosenButCountInTheSoftmax) {
  auto logits = flat();
  for (int i = 290; i < kVocab; ++i) logits[i] = 5.0f;
  sampler_.start({.temperature = 0.0f});
  TokenChoice choice = sampler_.next(logits, {.vocab = 290, .top_logprobs = 0});
  EXPECT_EQ(choice.id, 0);
  EXPECT_NEAR(choice.logprob, -std::log(290 + 10 * std::exp(5.0)), 1e-5);
  sampler_.start({.temperature = 1.0f, .seed = 3});
  for (int i = 0; i < 100; ++i) EXPECT_LT(sampler_.next(logits, {.vocab = 290}).id, 290);
}

TEST_P(Sampling, NonFiniteLogitsAreReported) {
  sampler_.start({.temperature = 0.0f});
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int at : {0, 5, 299}) {
      auto logits = flat();
      logits[at] = bad;
      EXPECT_EQ(sampler_.next(logits).non_finite, 1);
    }
  }
  EXPECT_EQ(sampler_.next(flat()).non_finite, 0);
}

TEST_P(Sampling, AMaskOverEveryIdIsReported) {
  SamplingParams params{.temperature = 0.0f, .min_tokens = 1};
  for (int i = 0; i < 4; ++i) params.stop_ids.push_back(i);
  sampler_.start(params);
  EXPECT_EQ(sampler_.next(flat(), {.vocab = 4}).non_finite, 1);
}

TEST_P(Sampling, LogitBiasAndMinTokensComeBeforeTheChoice) {
  auto logits = flat();
  logits[10] = 4.0f;
  logits[20] = 3.0f;
  sampler_.start(
      {.temperature = 0.0f, .min_tokens = 2, .stop_ids = {10, 30}, .logit_bias = {{20, -2.0f}, {40, 2.5f}}});
  EXPECT_EQ(sampler_.next(logits).id, 40);
  EXPECT_EQ(sampler_.next(logits).id, 40);
  EXPECT_EQ(sampler_.next(logits).id, 10);  // two tokens are there
}

TEST_P(Sampling, PenaltiesSeeWhatTheDesignSays) {
  // Repetition sees prompt and output, the other two only output; repetition comes first.
  auto logits = flat(-100.0f);
  logits[1] = 2.0f;  // in the prompt
  logits[2] = 1.5f;
  logits[3] = -90.0f;
  sampler_.start({.temperature = 0.0f, .repetition_penalty = 2.0f}, {1, 1, 3});
  EXPECT_EQ(sampler_.next(logits).id, 2);  // 2 / 2 = 1 < 1.5
  EXPECT_EQ(sampler_.next(logits).id, 1);  // 1.5 / 2 < 1

  sampler_.start({.temperature = 0.0f, .presence_penalty = 1.0f}, {1, 1, 3});
  EXPECT_EQ(sampler_.next(logits).id, 1);  // the prompt does not count
  EXPECT_EQ(sampler_.next(logits).id, 2);  // 2 - 1 < 1.5
  EXPECT_EQ(sampler_.next(logits).id, 1);  // 1 > 0.5

  sampler_.start({.temperature = 0.0f, .frequency_penalty = 0.4f}, {1});
  std::vector<TokenId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(sampler_.next(logits).id);
  // 2.0, 1.6 | 1.5, 1.2 | 1.1, ... by falling value of (logit - 0.4 * count), equal ones by id.
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 1, 2, 1, 2, 1}));

  // Negative logits are multiplied.
  logits = flat(-10.0f);
  logits[5] = -1.0f;
  logits[6] = -1.5f;
  sampler_.start({.temperature = 0.0f, .repetition_penalty = 2.0f}, {5});
  EXPECT_EQ(sampler_.next(logits).id, 6);
}

TEST_P(Sampling, APenaltyOfTheSlotsEarlierRequestDoesNotShow) {  // proves R4.5
  auto logits = flat(-10.0f);
  logits[5] = 2.0f;
  logits[6] = 1.0f;
  sampler_.start({.temperature = 0.0f, .presence_penalty = 2.0f});
  EXPECT_EQ(sampler_.next(logits).id, 5);
  sampler_.start({.temperature = 0.0f, .presence_penalty = 2.0f});
  EXPECT_EQ(sampler_.next(logits).id, 5);
}

// Draws at ever new positions.
std::map<TokenId, int> draw(Sampler& sampler, const SamplingParams& params, const std::vector<float>& logits,
                            int times) {
  sampler.start(params);
  std::map<TokenId, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.next(logits, {.position = i}).id];
  return counts;
}

double chi_square(const std::map<TokenId, int>& counts, const std::vector<double>& probability, int times,
                  int& cells) {
  double chi = 0, rest_probability = 1;
  int rest = times;
  cells = 0;
  for (std::size_t id = 0; id < probability.size(); ++id) {
    const double expected = probability[id] * times;
    if (expected < 5) continue;
    const auto found = counts.find(static_cast<TokenId>(id));
    const int got = found == counts.end() ? 0 : found->second;
    chi += (got - expected) * (got - expected) / expected;
    rest_probability -= probability[id];
    rest -= got;
    ++cells;
  }
  if (rest_probability * times >= 5) {
    chi += std::pow(rest - rest_probability * times, 2.0) / (rest_probability * times);
    ++cells;
  }
  return chi;
}

TEST_P(Sampling, FrequenciesFollowTheSoftmaxWithTemperature) {
  Random random(31);
  auto logits = random.floats(kVocab, 2.0f);
  for (const float temperature : {0.5f, 1.0f, 1.7f}) {
    std::vector<double> probability(kVocab);
    double sum = 0;
    for (int i = 0; i < kVocab; ++i) sum += probability[i] = std::exp(logits[i] / temperature);
    for (double& p : probability) p /= sum;
    constexpr int kTimes = 20000;
    int cells = 0;
    const double chi = chi_square(draw(sampler_, {.temperature = temperature, .seed = 99}, logits, kTimes),
                                  probability, kTimes, cells);
    // Mean cells - 1, deviation sqrt(2 (cells - 1)); five deviations, and the seed is fixed.
    EXPECT_LE(chi, cells - 1 + 5 * std::sqrt(2.0 * (cells - 1))) << "temperature " << temperature;
    EXPECT_GE(chi, (cells - 1) / 2.0);
  }
}

TEST_P(Sampling, TopKKeepsExactlyKAndEqualOnesById) {
  auto logits = flat(0.0f);
  logits[7] = 1.0f;
  const auto counts = draw(sampler_, {.temperature = 1.0f, .top_k = 3, .seed = 5}, logits, 400);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts.contains(7) && counts.contains(0) && counts.contains(1));
  const auto all = draw(sampler_, {.temperature = 1.0f, .top_k = 100000, .seed = 5}, logits, 400);
  EXPECT_GT(all.size(), 100u);  // a k beyond the vocabulary is no limit
}

TEST_P(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  auto logits = flat(-50.0f);
  logits[3] = std::log(0.5f);
  logits[4] = std::log(0.3f);
  logits[5] = std::log(0.15f);
  logits[6] = std::log(0.05f);
  const auto kept = [&](float top_p) {
    std::vector<TokenId> ids;
    for (const auto& [id, count] :
         draw(sampler_, {.temperature = 1.0f, .top_p = top_p, .seed = 6}, logits, 600))
      ids.push_back(id);
    return ids;
  };
  EXPECT_EQ(kept(1e-6f), (std::vector<TokenId>{3}));
  EXPECT_EQ(kept(0.49f), (std::vector<TokenId>{3}));
  EXPECT_EQ(kept(0.51f), (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(kept(0.79f), (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(kept(0.94f), (std::vector<TokenId>{3, 4, 5}));
  EXPECT_EQ(kept(0.96f), (std::vector<TokenId>{3, 4, 5, 6}));
}

TEST_P(Sampling, MinPKeepsWhatIsLikelyEnough) {
  auto logits = flat(-50.0f);
  logits[3] = 0.0f;
  logits[4] = std::log(0.21f);
  logits[5] = std::log(0.19f);
  const auto counts = draw(sampler_, {.temperature = 1.0f, .min_p = 0.2f, .seed = 6}, logits, 500);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_EQ(draw(sampler_, {.temperature = 1.0f, .min_p = 1.0f, .seed = 6}, logits, 100).size(), 1u);
}

TEST_P(Sampling, EqualSeedsGiveEqualTokensAndOthersOthers) {
  const auto ids = [&](std::uint64_t seed) {
    sampler_.start({.temperature = 1.0f, .seed = seed});
    std::vector<TokenId> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler_.next(flat()).id);
    return out;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
  EXPECT_NE(ids(1), ids(1 + (std::uint64_t{1} << 32)));
}

TEST_P(Sampling, RawLogprobsIgnoreTheSettingsAndProcessedOnesShowThem) {
  auto logits = flat(-3.0f);
  logits[8] = 2.0f;
  logits[9] = 1.0f;
  logits[2] = 1.0f;
  double sum = 0;
  for (const float l : logits) sum += std::exp(l);
  const SamplingParams params{.temperature = 0.5f, .top_k = 2, .seed = 4, .logit_bias = {{9, -1.0f}}};
  sampler_.start(params);
  TokenChoice choice = sampler_.next(logits, {.top_logprobs = 4});
  EXPECT_NEAR(choice.logprob, logits[choice.id] - std::log(sum), 1e-5);
  ASSERT_EQ(choice.top_count, 4);
  EXPECT_EQ((std::vector<TokenId>(choice.top_ids.begin(), choice.top_ids.begin() + 4)),
            (std::vector<TokenId>{8, 2, 9, 0}));
  EXPECT_NEAR(choice.top_logprobs[2], 1.0 - std::log(sum), 1e-5);

  sampler_.start(params);
  choice = sampler_.next(logits, {.mode = LogprobsMode::Processed, .top_logprobs = 4});
  ASSERT_EQ(choice.top_count, 2);  // the others are gone
  EXPECT_EQ(choice.top_ids[0], 8);
  EXPECT_EQ(choice.top_ids[1], 2);
  EXPECT_NEAR(choice.top_logprobs[0], 4.0 - std::log(std::exp(4.0) + std::exp(2.0)), 1e-5);
}

TEST_P(Sampling, ScoredRowsChooseTheirTargetAndStoreNothing) {
  Random random(32);
  const auto logits = random.floats(kVocab, 2.0f);
  double sum = 0;
  for (const float l : logits) sum += std::exp(l);
  sampler_.start({.temperature = 0.0f, .presence_penalty = 2.0f, .logit_bias = {{77, 50.0f}}});
  const TokenChoice scored = sampler_.next(logits, {.top_logprobs = 20, .target = 123});
  EXPECT_EQ(scored.id, 123);
  EXPECT_NEAR(scored.logprob, logits[123] - std::log(sum), 2e-5);
  EXPECT_EQ(scored.top_count, 20);
  for (int i = 1; i < 20; ++i) EXPECT_GE(scored.top_logprobs[i - 1], scored.top_logprobs[i]);
  auto only = flat(-5.0f);
  only[123] = 1.0f;
  EXPECT_EQ(sampler_.next(only).id, 77);  // the bias
  only[123] = 60.0f;
  EXPECT_EQ(sampler_.next(only).id, 123);  // 123 carries no penalty: scoring it was not output
}

// Everything at random: the fast sampler must agree with the plain one in every bit.
TEST(SamplingBackends, AgreeBitForBit) {
  for (const int vocab : {5, 77, 300, 5000}) {
    StepLimits limits = kLimits;
    limits.vocab = vocab;
    Sampler plain(make_reference_backend(), limits);
    std::vector<std::unique_ptr<Sampler>> fast;
    for (const CpuIsa isa : {CpuIsa::Scalar, CpuIsa::Avx2, CpuIsa::Avx512}) {
      if (isa <= detected_cpu_isa())
        fast.push_back(std::make_unique<Sampler>(make_cpu_backend({.threads = 1, .isa = isa}), limits));
    }
    Random random(40 + vocab);
    for (int round = 0; round < 60; ++round) {
      SamplingParams p;
      const auto maybe = [&](int odds) { return random.between(0, odds) == 0; };
      p.temperature = maybe(4) ? 0.0f : static_cast<float>(random.between(1, 30)) / 10;
      if (maybe(1)) p.top_k = random.between(1, 2 * vocab);
      if (maybe(1)) p.top_p = static_cast<float>(random.between(1, 1000)) / 1000;
      if (maybe(2)) p.min_p = static_cast<float>(random.between(1, 1000)) / 1000;
      if (maybe(2)) p.repetition_penalty = static_cast<float>(random.between(5, 20)) / 10;
      if (maybe(2)) p.presence_penalty = static_cast<float>(random.between(-20, 20)) / 10;
      if (maybe(2)) p.frequency_penalty = static_cast<float>(random.between(-20, 20)) / 10;
      p.seed = random.engine()();
      p.min_tokens = random.between(0, 3);
      for (int i = random.between(0, 3); i > 0; --i) p.stop_ids.push_back(random.between(0, vocab - 1));
      for (int i = random.between(0, 3); i > 0; --i)
        p.logit_bias.emplace_back(random.between(0, vocab - 1), random.normal() * 3);
      std::vector<TokenId> prompt;
      for (int i = random.between(1, 20); i > 0; --i) prompt.push_back(random.between(0, vocab - 1));
      plain.start(p, prompt);
      for (auto& sampler : fast) sampler->start(p, prompt);
      for (int token = 0; token < 5; ++token) {
        auto logits = random.floats(vocab, maybe(1) ? 1.0f : 6.0f);
        for (float& l : logits) l = round_bf16(l);  // many equal ones
        const Sampler::Options options{.vocab = maybe(2) ? std::max(1, vocab - 3) : vocab,
                                       .mode = maybe(1) ? LogprobsMode::Raw : LogprobsMode::Processed,
                                       .top_logprobs = maybe(3) ? -1 : random.between(0, 20),
                                       .target = maybe(5) ? random.between(0, vocab - 1) : -1};
        const TokenChoice want = plain.next(logits, options);
        for (std::size_t s = 0; s < fast.size(); ++s) {
          const TokenChoice got = fast[s]->next(logits, options);
          ASSERT_EQ(got.non_finite, want.non_finite);
          ASSERT_EQ(got.id, want.id) << "vocab " << vocab << " round " << round << " token " << token
                                     << " sampler " << s;
          ASSERT_EQ(got.logprob, want.logprob)
              << "vocab " << vocab << " round " << round << " token " << token;
          ASSERT_EQ(got.top_count, want.top_count);
          ASSERT_EQ(got.top_ids, want.top_ids);
          ASSERT_EQ(got.top_logprobs, want.top_logprobs);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::ops
