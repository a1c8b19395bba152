#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "executor/test_driver.h"

// The executor over real ranks: one rank, the reference operators, a small made-up model.
namespace tandem::executor {
namespace {

using testing::Asked;
using testing::Driver;
using testing::Got;
using ::testing::HasSubstr;
using testing::random_prompt;
using testing::small_options;

std::unique_ptr<RankExecutor> start(const ExecutorOptions& options) {
  auto executor = start_executor(options);
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

// What the request gives when nothing ran before it.
std::vector<Got> alone(const Asked& asked, std::size_t count) {
  const auto executor = start(small_options());
  return Driver(*executor).solo(asked, count);
}

class ModelExecutor : public ::testing::Test {
 protected:
  void restart(const ExecutorOptions& options = small_options()) {
    driver_.reset();
    executor_.reset();
    executor_ = start(options);
    ASSERT_NE(executor_, nullptr);
    driver_.emplace(*executor_);
  }
  Driver& driver() { return *driver_; }

  std::unique_ptr<RankExecutor> executor_;
  std::optional<Driver> driver_;
};

TEST_F(ModelExecutor, AnswersAPrompt) {
  ASSERT_NO_FATAL_FAILURE(restart());
  const std::vector<Got> tokens = driver().solo({.prompt = random_prompt(70, 1)}, 6);
  ASSERT_EQ(tokens.size(), 6u);
  for (const Got& token : tokens) {
    ASSERT_EQ(token.top.size(), 5u);
    EXPECT_EQ(token.top[0].first, token.id);  // greedy
    EXPECT_EQ(token.top[0].second, token.logprob);
    EXPECT_LT(token.logprob, 0.0f);
  }
  EXPECT_TRUE(executor_->shutdown().has_value());
}

// Chunked = whole, bit for bit with the reference operators (design, exactness).
TEST_F(ModelExecutor, AChunkedPromptGivesTheBitsOfAWholeOne) {
  ASSERT_NO_FATAL_FAILURE(restart());
  for (const int length : {1, 63, 64, 65, 128, 200}) {
    const Asked asked{.prompt = random_prompt(length, 100 + static_cast<unsigned>(length))};
    const std::vector<Got> whole = driver().solo(asked, 4);
    for (const int chunk : {64, 128}) {
      EXPECT_EQ(driver().solo(asked, 4, chunk), whole) << length << " tokens in chunks of " << chunk;
    }
  }
}

// proves R4.5: also with the memory that no request holds filled with NaN
TEST_F(ModelExecutor, AReusedSlotGivesTheBitsOfAFreshProcess) {
  const Asked asked{.prompt = random_prompt(130, 7)};
  const std::vector<Got> fresh = alone(asked, 8);
  for (const bool nan_fill : {false, true}) {
    ExecutorOptions options = small_options();
    options.nan_fill_freed = nan_fill;
    ASSERT_NO_FATAL_FAILURE(restart(options));
    // The same slots and pages, again and again, after lives of several lengths and stages.
    EXPECT_EQ(driver().solo(asked, 8), fresh);
    for (const int earlier : {1, 64, 190, 250}) {
      SCOPED_TRACE(earlier);
      const RequestId before = driver().add({.prompt = random_prompt(earlier, 55)});
      ASSERT_NO_FATAL_FAILURE(driver().finish(before, 3));
      ASSERT_NO_FATAL_FAILURE(driver().drop(before));
      const RequestId half = driver().add({.prompt = random_prompt(200, 56)});
      ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(half, 64)}));  // dropped between two chunks (R4.6)
      ASSERT_NO_FATAL_FAILURE(driver().drop(half));
      const RequestId again = driver().add(asked);
      EXPECT_EQ(driver().slot(again), 0);
      ASSERT_NO_FATAL_FAILURE(driver().finish(again, 8));
      EXPECT_EQ(driver().tokens(again), fresh);
      ASSERT_NO_FATAL_FAILURE(driver().drop(again));
    }
  }
}

// proves P2a gate 2 with the reference operators, greedy and sampled; and R4.7: rows, slots, pages and
// padding change nothing
TEST_F(ModelExecutor, AMixedStepGivesTheBitsOfARequestAlone) {
  ops::SamplingParams sampled{.temperature = 0.9f, .top_p = 0.95f, .repetition_penalty = 1.2f, .seed = 77};
  const Asked asked[] = {{.prompt = random_prompt(30, 1)},
                         {.prompt = random_prompt(90, 2), .sampling = sampled},
                         {.prompt = random_prompt(200, 3), .prompt_logprobs = 2}};
  std::vector<Got> solo[3];
  for (int i = 0; i < 3; ++i) solo[i] = alone(asked[i], 6);

  ExecutorOptions options = small_options();
  options.nan_fill_freed = true;
  ASSERT_NO_FATAL_FAILURE(restart(options));
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const RequestId a = driver().add(asked[0], round == 1 ? 3 : -1);
    const RequestId b = driver().add(asked[1], round == 2 ? 3 : -1);
    const RequestId c = driver().add(asked[2]);
    // a decodes while b and c prefill; then both decode, in both orders, while c goes on by chunks.
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(a)}));
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(a), driver().row(c, 64), driver().row(b)}, round));
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(b), driver().row(a), driver().row(c, 64)}, round));
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(a), driver().row(b), driver().row(c, 64)}, round));
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(b), driver().row(c)}, round));
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(c), driver().row(a), driver().row(b)}, round));
    for (const RequestId id : {a, b, c}) ASSERT_NO_FATAL_FAILURE(driver().finish(id, 6));
    EXPECT_EQ(driver().tokens(a), solo[0]);
    EXPECT_EQ(driver().tokens(b), solo[1]);
    EXPECT_EQ(driver().tokens(c), solo[2]);
    EXPECT_EQ(driver().prompt_got(c).size(), 199u);
    for (const RequestId id : {c, a, b}) ASSERT_NO_FATAL_FAILURE(driver().drop(id));
  }
}

// A prompt token's score is what the token would have got as a forced completion token.
TEST_F(ModelExecutor, PromptLogprobsAreThoseOfForcedTokens) {
  ASSERT_NO_FATAL_FAILURE(restart());
  const std::vector<TokenId> ids = random_prompt(140, 12);
  for (const int chunk : {64, 1 << 20}) {
    const RequestId scored = driver().add({.prompt = ids, .prompt_logprobs = 3});
    ASSERT_NO_FATAL_FAILURE(driver().finish(scored, 1, chunk));
    ASSERT_EQ(driver().prompt_got(scored).size(), ids.size() - 1);
    const RequestId forced = driver().add({.prompt = {ids.begin(), ids.begin() + 60},
                                           .top_logprobs = 3,
                                           .forced = {ids.begin() + 60, ids.end()}});
    ASSERT_NO_FATAL_FAILURE(driver().finish(forced, ids.size() - 60));
    for (std::size_t i = 60; i < ids.size(); ++i) {
      EXPECT_EQ(driver().prompt_got(scored)[i - 1].id, ids[i]);
      EXPECT_EQ(driver().prompt_got(scored)[i - 1], driver().tokens(forced)[i - 60]) << "token " << i;
    }
    ASSERT_NO_FATAL_FAILURE(driver().drop(scored));
    ASSERT_NO_FATAL_FAILURE(driver().drop(forced));
  }
}

// Writes NaN into a request's state before a given step.
class SpoilState final : public rank::Faults {
 public:
  SpoilState(RequestId request, std::uint64_t command) : request_(request), command_(command) {}
  Result<void> before(RankId, const rank::Command& command, rank::RankModel& model) override {
    return command.number == command_ ? model.spoil(request_) : Result<void>{};
  }

 private:
  RequestId request_;
  std::uint64_t command_;
};

// proves R2.7
TEST_F(ModelExecutor, ANonFiniteRequestEndsAloneAndItsSlotIsClean) {
  const Asked asked{.prompt = random_prompt(40, 21)};
  const std::vector<Got> fresh = alone(asked, 6);
  ExecutorOptions options = small_options();
  options.faults = std::make_shared<SpoilState>(RequestId{1}, 8);  // the third step
  ASSERT_NO_FATAL_FAILURE(restart(options));
  const RequestId victim = driver().add({.prompt = random_prompt(40, 20)});
  const RequestId healthy = driver().add(asked);
  ASSERT_EQ(victim, RequestId{1});
  ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(victim), driver().row(healthy)}));
  ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(victim), driver().row(healthy)}));
  ASSERT_TRUE(executor_->submit_step({.rows = {driver().row(victim), driver().row(healthy)}}).has_value());
  const auto step = executor_->wait_step();
  ASSERT_TRUE(step.has_value()) << step.error().message;
  for (const rank::Artifact& artifact : step->artifacts) {
    EXPECT_EQ(artifact.choice->non_finite, artifact.request == victim ? 1 : 0);
    if (artifact.request != healthy) continue;
    EXPECT_EQ(testing::got(*artifact.choice), fresh[2]);
  }
  const int slot = driver().slot(victim);
  ASSERT_NO_FATAL_FAILURE(driver().drop(victim));
  const RequestId next = driver().add(asked, slot);
  ASSERT_NO_FATAL_FAILURE(driver().finish(next, 6));
  EXPECT_EQ(driver().tokens(next), fresh);
  EXPECT_FALSE(executor_->poisoned().has_value());
}

// proves R1.4: what the ranks hold, not what the controller says, decides; any difference is fatal
TEST_F(ModelExecutor, ARowThatDisagreesWithTheRanksBooksIsFatal) {
  struct Case {
    const char* message;
    std::function<void(rank::Row&)> spoil;
  };
  const Case cases[] = {
      {"names slot 2 but is bound to slot 0", [](rank::Row& row) { row.slot = SlotId{2}; }},
      {"goes on at position 31 instead of 30", [](rank::Row& row) { row.base_pos = 31; }},
      {"request 77 comes in at position 30, not 0", [](rank::Row& row) { row.request = RequestId{77}; }},
      {"request 77 names slot 0, which request 1 holds",
       [](rank::Row& row) {
         row = {.request = RequestId{77}, .slot = SlotId{0}, .kind = ops::RowKind::Prefill, .ids = {1}};
         row.sampling.emplace();
       }},
      {"adds page 0, which request 1 holds", [](rank::Row& row) { row.new_pages = {PageId{0}}; }},
      {"names slot 1 but is bound",
       [](rank::Row& row) {
         row.slot = SlotId{1};
         row.new_pages = {PageId{5}};
       }},
  };
  for (const Case& c : cases) {
    ASSERT_NO_FATAL_FAILURE(restart());
    const RequestId id = driver().add({.prompt = random_prompt(30, 1)});
    ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(id)}));
    rank::Row row = driver().row(id);
    c.spoil(row);
    ASSERT_TRUE(executor_->submit_step({.rows = {row}}).has_value());
    const auto step = executor_->wait_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Protocol);
    EXPECT_THAT(step.error().message, HasSubstr(c.message));
    EXPECT_THAT(step.error().message, HasSubstr("[rank 0] RunStep number 7: diverges"));
    EXPECT_TRUE(executor_->poisoned().has_value());
  }
}

// proves R4.2 on real ranks
TEST_F(ModelExecutor, DropsTellWhetherTheRequestWasThere) {
  ASSERT_NO_FATAL_FAILURE(restart());
  const rank::Drop never{RequestId{500}, rank::Expectation::MustBeAbsent};
  EXPECT_TRUE(executor_->drop({&never, 1}).has_value());
  const RequestId id = driver().add({.prompt = random_prompt(30, 1)});
  ASSERT_NO_FATAL_FAILURE(driver().run({driver().row(id)}));
  ASSERT_NO_FATAL_FAILURE(driver().drop(id));
  const rank::Drop twice{id, rank::Expectation::MustExist};
  EXPECT_EQ(executor_->drop({&twice, 1}).error().kind, ErrorKind::Protocol);
}

// proves R3.4: a rank whose memory is too small says so at the start
TEST_F(ModelExecutor, PagesFollowTheMemoryThatARankMayUse) {
  ExecutorOptions options = small_options();
  options.kv_bytes.reset();
  options.memory_bytes = {std::int64_t{32} << 20};
  ASSERT_NO_FATAL_FAILURE(restart(options));
  const int pages = executor_->capacity().pages;
  EXPECT_GT(pages, 16);
  EXPECT_LT(pages, 60);
  options.memory_bytes = {std::int64_t{8} << 20};
  const auto refused = start_executor(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
}

}  // namespace
}  // namespace tandem::executor
