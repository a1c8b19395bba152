// The engine over real ranks: a small made-up model with the reference operators, where equal means equal
// bits. What a request gets beside others, in mixed steps, in chunks, in reused slots and with a step sent
// ahead is what it gets alone.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/make_engine.h"
#include "engine/test_sink.h"
#include "executor/test_driver.h"
#include "text/tokenizer_fixture.h"

namespace tandem::engine {
namespace {

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer kTokenizer =
      text::Tokenizer::parse(text::fixture::tokenizer_json(), text::fixture::tokenizer_config_json()).value();
  return kTokenizer;
}

std::unique_ptr<Engine> start(EngineOptions options, int max_in_flight = 1, int world = 1, std::int32_t slots = 4) {
  executor::ExecutorOptions ranks = executor::testing::small_options(world);
  if (world > 1) options.mixed = false;
  ranks.max_in_flight = max_in_flight;
  ranks.max_requests = slots;
  ranks.nan_fill_freed = true;
  auto executor = executor::start_executor(ranks);
  EXPECT_TRUE(executor) << executor.error().message;
  options.steps_in_flight = max_in_flight;
  const TokenId end = *tokenizer().eos();
  return make_engine(options, std::move(*executor), tokenizer(), std::span(&end, 1)).value();
}

std::vector<Request> requests() {
  std::mt19937 random(11);
  std::vector<Request> all;
  for (const int prompt : {1, 40, 300, 64, 65, 130, 7, 191}) {
    Request request;
    request.prompt = executor::testing::random_prompt(prompt, static_cast<std::uint32_t>(random()));
    request.max_tokens = 3 + static_cast<int>(random() % 12);
    request.ignore_eos = true;
    request.logprobs = 4;
    request.prompt_logprobs = all.size() % 3 == 0 ? 2 : -1;
    request.sampling.temperature = all.size() % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.top_p = 0.95f;
    request.sampling.frequency_penalty = all.size() % 2 == 0 ? 0.0f : 0.5f;
    request.sampling.seed = random();
    all.push_back(std::move(request));
  }
  return all;
}

bool same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob && a.top == b.top;
}

void expect_same(const RecordingSink::Record& got, const RecordingSink::Record& alone, std::size_t request) {
  ASSERT_TRUE(got.finish && alone.finish) << "request " << request;
  EXPECT_EQ(got.tokens(), alone.tokens()) << "request " << request;
  EXPECT_EQ(got.text(), alone.text()) << "request " << request;
  const auto a = got.logprobs(), b = alone.logprobs();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end(), same)) << "logprobs of request " << request;
  const auto& p = got.deltas.front().prompt_logprobs;
  const auto& q = alone.deltas.front().prompt_logprobs;
  EXPECT_TRUE(std::equal(p.begin(), p.end(), q.begin(), q.end(), same))
      << "prompt logprobs of request " << request;
}

// Each by itself on a replica of `world` ranks that has served nothing before.
const std::vector<RecordingSink::Record>& alone(int world = 1) {
  static std::map<int, std::vector<RecordingSink::Record>> known;
  std::vector<RecordingSink::Record>& records = known[world];
  if (!records.empty()) return records;
  for (const Request& request : requests()) {
    const auto engine = start({}, 1, world);
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(engine->submit(request, sink));
    records.push_back(sink->wait());
  }
  return records;
}

void run_together(Engine& engine, int rounds, int world = 1) {
  std::mt19937 random(3);
  const std::vector<Request> all = requests();
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Between them requests that leave early, so that slots and rows change hands at odd moments.
      Request guest = all[random() % all.size()];
      auto left = std::make_shared<RecordingSink>();
      const auto id = engine.submit(guest, left);
      sinks.push_back(std::make_shared<RecordingSink>());
      ASSERT_TRUE(engine.submit(all[i], sinks.back()));
      if (random() % 2 == 0) left->wait_for_deltas(1);
      if (id) engine.cancel(*id);
    }
    for (std::size_t i = 0; i < all.size(); ++i) expect_same(sinks[i]->wait(), alone(world)[i], i);
  }
  ASSERT_TRUE(engine.stop());
  EXPECT_EQ(engine.load().pages_used, 0);
  EXPECT_EQ(engine.load().slots_used, 0);
}

class EngineWithModelOn : public ::testing::TestWithParam<int> {};  // so many ranks
INSTANTIATE_TEST_SUITE_P(Worlds, EngineWithModelOn, ::testing::Values(1, 2, 4));

// proves R4.5 R4.7, and P1's scheduler end to end at every degree
TEST_P(EngineWithModelOn, ARequestBesideOthersGetsTheBitsItGetsAlone) {
  const int most_in_flight = GetParam() < 4 ? 2 : 1;  // four ranks take longest, and two in flight are tested on two
  for (int in_flight = 1; in_flight <= most_in_flight; ++in_flight) {
    SCOPED_TRACE("steps in flight " + std::to_string(in_flight));
    const auto engine = start({}, in_flight, GetParam());
    run_together(*engine, GetParam() == 1 ? 2 : 1, GetParam());
  }
}

TEST(EngineWithModel, SmallBudgetsAndOneKindOfRowAStepGiveTheSameBits) {
  for (const bool mixed : {true, false}) {
    const auto engine = start({.max_step_tokens = 64, .max_mixed_tokens = 67, .mixed = mixed});
    run_together(*engine, 1);
  }
}

TEST(EngineWithModel, OneSlotServesAllOneAfterAnother) {
  const auto engine = start({.max_requests = 1});
  run_together(*engine, 1);
}

TEST(EngineWithModel, AForbiddenTokenIsNeverChosen) {
  const auto engine = start({});
  Request request = requests()[1];
  request.sampling.temperature = 0.0f;
  const TokenId first = alone()[1].tokens()[0];
  request.sampling.logit_bias = {{first, -100.0f}};
  auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine->submit(request, sink));
  for (const TokenId id : sink->wait().tokens()) EXPECT_NE(id, first);
}

}  // namespace
}  // namespace tandem::engine
