#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "executor/fault_flag.h"
#include "executor/step_traces.h"
#include "executor/test_driver.h"

// Tensor parallelism on CPU ranks: milestone P1's layout (linear attention replicated), degrees 2 and 4.
namespace tandem::executor {
namespace {

using testing::Asked;
using testing::Driver;
using testing::FailAtCommand7;
using testing::Got;
using ::testing::HasSubstr;
using testing::random_prompt;
using testing::small_options;
using testing::Traces;

class TensorParallel : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }

  // Three requests that prefill by chunks and decode in steps of one kind of row, as P1 has them: forced
  // tokens, so that a small difference cannot send two runs apart.
  std::vector<std::vector<Got>> play(const ExecutorOptions& options) {
    auto executor = start_executor(options);
    EXPECT_TRUE(executor.has_value()) << executor.error().message;
    if (!executor) return {};
    Driver driver(**executor);
    std::vector<RequestId> ids;
    for (const int length : {5, 64, 150}) {
      const auto seed = static_cast<std::uint32_t>(length);
      ids.push_back(
          driver.add({.prompt = random_prompt(length, seed), .forced = random_prompt(8, seed + 1)}));
    }
    driver.run({driver.row(ids[0]), driver.row(ids[1]), driver.row(ids[2], 64)});
    driver.run({driver.row(ids[1]), driver.row(ids[0])});
    driver.run({driver.row(ids[2])});
    for (int i = 0; i < 6; ++i) driver.run({driver.row(ids[2]), driver.row(ids[0]), driver.row(ids[1])});
    std::vector<std::vector<Got>> all;
    for (const RequestId id : ids) {
      all.push_back(driver.tokens(id));
      driver.drop(id);
    }
    const auto ended = (*executor)->shutdown();
    EXPECT_TRUE(ended.has_value()) << ended.error().message;
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, TensorParallel, ::testing::Values(2, 4));

// proves R7.1, R7.2 and R7.7 end to end: P1 on the CPU
TEST_P(TensorParallel, GivesTheLogprobsOfOneRankWithinRoundingAndTheSameBitsEveryTime) {
  for (const rank::OpsKind ops : {rank::OpsKind::Reference, rank::OpsKind::Fast}) {
    ExecutorOptions one_rank = small_options(1);
    ExecutorOptions options = small_options(world());
    one_rank.devices.ops = options.devices.ops = ops;
    const auto one = play(one_rank);
    const auto many = play(options);
    EXPECT_EQ(many, play(options));
    ASSERT_EQ(one.size(), many.size());
    double sum = 0, most = 0;
    int count = 0;
    for (std::size_t r = 0; r < one.size(); ++r) {
      ASSERT_EQ(one[r].size(), many[r].size());
      ASSERT_GE(one[r].size(), 7u);
      for (std::size_t i = 0; i < one[r].size(); ++i) {
        EXPECT_EQ(one[r][i].id, many[r][i].id);
        const double off = std::abs(one[r][i].logprob - many[r][i].logprob);
        sum += off;
        most = std::max(most, off);
        ++count;
      }
    }
    // Partial sums are rounded to bf16 once more than one rank's: about 2^-9 of a logit of size 1 to 8.
    EXPECT_GT(most, 0.0) << "the degree changes no rounding: is it in use?";
    EXPECT_LT(sum / count, 0.03);
    EXPECT_LT(most, 0.15);
    RecordProperty("mean_logprob_difference", std::to_string(sum / count));
    std::printf("[ figures  ] world %d %s: mean |difference| %.4f, most %.4f, %d tokens\n", world(),
                ops == rank::OpsKind::Fast ? "fast" : "reference", sum / count, most, count);
  }
}

// proves R7.7, and P2a gate 3 for steps of one kind of row: every rank holds the same residual after every
// layer, makes the same collectives, and has the same replicated state
TEST_P(TensorParallel, AllRanksAgreeAfterEveryLayerAndStep) {
  Traces traces;
  ExecutorOptions options = small_options(world());
  options.hash_residual = true;
  options.nan_fill_freed = true;
  options.on_step = [&](const rank::StepTrace& trace) { traces.add(trace); };
  play(options);
  const std::size_t steps = traces.agree(world());
  EXPECT_EQ(steps, 9u);
  EXPECT_EQ(traces.residual_hashes(1), 5u);  // the embedding's and four layers'
  // 2 o_proj + 4 down_proj all-reduces, then the ids' broadcast (P2a's part of P2b gate 8).
  for (std::uint64_t step = 2; step <= steps; ++step) {
    EXPECT_EQ(traces.collectives(step) - traces.collectives(step - 1), 7u) << "step " << step;
  }
}

// proves R1.5, R5.1: a warm-up that meets every kernel changes nothing of what follows
TEST_P(TensorParallel, AWarmUpOfEverySizeChangesNoResultAndKeepsTheRanksAlike) {
  const auto plain = play(small_options(world()));
  Traces traces;
  ExecutorOptions options = small_options(world());
  options.warm_every_size = true;
  options.nan_fill_freed = true;
  options.on_step = [&](const rank::StepTrace& trace) { traces.add(trace); };
  EXPECT_EQ(play(options), plain);
  EXPECT_EQ(traces.agree(world()), 9u);
}

// proves R4.5 at degree n
TEST_P(TensorParallel, AReusedSlotGivesTheBitsOfAFreshProcess) {
  ExecutorOptions options = small_options(world());
  options.nan_fill_freed = true;
  const Asked asked{.prompt = random_prompt(100, 3)};
  std::vector<Got> fresh;
  {
    auto executor = start_executor(small_options(world()));
    ASSERT_TRUE(executor.has_value());
    fresh = Driver(**executor).solo(asked, 5);
  }
  auto executor = start_executor(options);
  ASSERT_TRUE(executor.has_value());
  Driver driver(**executor);
  driver.solo({.prompt = random_prompt(200, 4)}, 3, 64);
  EXPECT_EQ(driver.solo(asked, 5), fresh);
}

// proves R5.1: the smallest rank decides for all
TEST_P(TensorParallel, ARankWithLessMemoryDecidesForAll) {
  ExecutorOptions options = small_options(world());
  options.kv_bytes.reset();
  options.memory_bytes.assign(static_cast<std::size_t>(world()), std::int64_t{64} << 20);
  int pages[2];
  for (int less = 0; less < 2; ++less) {
    if (less == 1) options.memory_bytes.back() = std::int64_t{26} << 20;
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    pages[less] = (*executor)->capacity().pages;
    Driver driver(**executor);
    EXPECT_EQ(driver.solo({.prompt = random_prompt(100, 3)}, 2).size(), 2u);
  }
  EXPECT_LT(pages[1], pages[0]);
}

// Hears what each rank measures.
class MeasuredBytes final : public rank::Faults {
 public:
  explicit MeasuredBytes(int world) : free_(static_cast<std::size_t>(world)) {}
  std::vector<rank::Reply> send(RankId rank, rank::Reply reply) override {
    if (reply.answer)
      if (const auto* measured = std::get_if<rank::Measured>(&*reply.answer)) free_[static_cast<std::size_t>(rank.value)].store(measured->free_bytes);
    return Faults::send(rank, std::move(reply));
  }
  std::int64_t last() const { return free_.back().load(); }

 private:
  std::vector<std::atomic<std::int64_t>> free_;
};

// proves R5.1 where a rank finds less than was planned: the replica lowers pages first, then slots, and refuses when no
// request fits
TEST_P(TensorParallel, ARankThatMeasuresLessThanThePlanLowersAll) {
  ExecutorOptions options = small_options(world());
  options.memory_bytes.assign(static_cast<std::size_t>(world()), std::int64_t{64} << 20);
  const auto measured = std::make_shared<MeasuredBytes>(world());
  options.faults = measured;
  const auto plan = plan_start(options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const std::int64_t slot = plan->capacity.ranks.back().slot_bytes, page = plan->capacity.ranks.back().page_bytes;
  const Asked asked{.prompt = random_prompt(20, 3)};
  std::vector<Got> whole;
  {
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    EXPECT_EQ((*executor)->capacity().slots, 4);
    EXPECT_EQ((*executor)->capacity().pages, plan->capacity.pages);
    whole = Driver(**executor).solo(asked, 3);
  }
  // As if only so many bytes were left on the last rank behind the reserve.
  const auto start_with = [&](std::int64_t left) {
    options.taken_bytes.clear();
    static_cast<void>(start_executor(options));  // what it measures by itself
    options.taken_bytes.assign(static_cast<std::size_t>(world()), 0);
    options.taken_bytes.back() = measured->last() - *options.reserve_bytes - left;
    return start_executor(options);
  };
  for (const int slots : {4, 3, 1}) {
    auto executor = start_with((slots + 1) * slot + (slots + 1) * page);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    EXPECT_EQ((*executor)->capacity().slots, slots);
    EXPECT_EQ((*executor)->capacity().pages, slots);
    EXPECT_EQ((*executor)->capacity().max_context, slots * 64 + 1);
    Driver driver(**executor);
    EXPECT_EQ(driver.solo(asked, 3), whole);
  }
  options.max_context = 256;  // asked for: kept, at the cost of slots
  {
    auto executor = start_with(4 * slot + 4 * page);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    EXPECT_EQ((*executor)->capacity().max_context, 256);
    EXPECT_EQ((*executor)->capacity().slots, 2);
    EXPECT_GE((*executor)->capacity().pages, 4);
  }
  const auto refused = start_with(2 * slot + 2 * page);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
  EXPECT_THAT(refused.error().message, HasSubstr("rank " + std::to_string(world() - 1) + " has least"));
}

// proves R2.3 and R3 with real ranks: a worker dies while its peers are in an all-reduce
TEST_P(TensorParallel, ARankThatDiesInAStepEndsTheReplicaAtOnce) {
  for (const int bad : {0, world() - 1}) {
    ExecutorOptions options = small_options(world());
    options.faults = std::make_shared<FailAtCommand7>(bad);
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value());
    Driver driver(**executor);
    const RequestId id = driver.add({.prompt = random_prompt(64, 3)});
    driver.run({driver.row(id)});
    ASSERT_TRUE((*executor)->submit_step({.rows = {driver.row(id)}}).has_value());
    const auto step = (*executor)->wait_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_THAT(step.error().message, HasSubstr("[rank " + std::to_string(bad) +
                                                "] RunStep number 7: the device fell off the bus"));
    EXPECT_EQ((*executor)->shutdown().error().kind, ErrorKind::Poisoned);  // every rank ended in time
  }
}

// proves R2.7 at degree n: NaN in one rank's state reaches rank 0 through the next all-reduce, and ends
// that request alone
TEST_P(TensorParallel, NanOnAnyRankEndsOneRequest) {
  class SpoilAtStep final : public rank::Faults {
   public:
    explicit SpoilAtStep(int rank) : rank_(rank) {}
    Result<void> before(RankId rank, const rank::Command& command, rank::RankModel& model) override {
      return rank.value == rank_ && command.number == 7 ? model.spoil(RequestId{1}) : Result<void>{};
    }

   private:
    int rank_;
  };
  std::vector<Got> solo;
  const Asked asked{.prompt = random_prompt(50, 8)};
  {
    auto executor = start_executor(small_options(world()));
    ASSERT_TRUE(executor.has_value());
    solo = Driver(**executor).solo(asked, 3);
  }
  for (const int bad : {0, world() - 1}) {
    ExecutorOptions options = small_options(world());
    options.faults = std::make_shared<SpoilAtStep>(bad);
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value());
    Driver driver(**executor);
    const RequestId victim = driver.add({.prompt = random_prompt(64, 3)});
    const RequestId healthy = driver.add(asked);
    driver.run({driver.row(victim), driver.row(healthy)});
    ASSERT_TRUE((*executor)->submit_step({.rows = {driver.row(victim), driver.row(healthy)}}).has_value());
    const auto step = (*executor)->wait_step();
    ASSERT_TRUE(step.has_value()) << step.error().message;
    for (const rank::Artifact& artifact : step->artifacts) {
      EXPECT_EQ(artifact.choice->non_finite, artifact.request == victim ? 1 : 0);
      if (artifact.request == healthy) {
        EXPECT_EQ(testing::got(*artifact.choice), solo[1]);
      }
    }
    driver.drop(victim);
    driver.drop(healthy);
    EXPECT_EQ(driver.solo(asked, 3), solo);  // in the victim's slot, on every rank
    EXPECT_TRUE((*executor)->shutdown().has_value());
  }
}

// B030. proves R1.7: a sampled token is rank 0's choice and every rank runs on with it, so that their states
// stay equal
TEST_P(TensorParallel, SampledTokensKeepTheRanksAlike) {
  const auto play_sampled = [&](std::vector<std::vector<TokenId>>& out) {
    Traces traces;
    ExecutorOptions options = small_options(world());
    options.hash_residual = true;
    options.on_step = [&](const rank::StepTrace& trace) { traces.add(trace); };
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    Driver driver(**executor);
    for (std::uint64_t round = 0; round < 2; ++round) {
      std::vector<RequestId> ids;
      for (std::uint32_t i = 0; i < 4; ++i) {
        Asked asked{.prompt = random_prompt(5 + static_cast<int>(i) * 9, i)};
        asked.sampling = {.temperature = 1.0f, .top_p = 0.95f, .seed = round * 4 + i};
        ids.push_back(driver.add(std::move(asked)));
      }
      for (int step = 0; step < 12; ++step) {
        std::vector<rank::Row> rows;
        for (const RequestId id : ids) rows.push_back(driver.row(id));
        ASSERT_NO_FATAL_FAILURE(driver.run(std::move(rows)));
      }
      for (const RequestId id : ids) {
        out.emplace_back();
        for (const Got& got : driver.tokens(id)) out.back().push_back(got.id);
        driver.drop(id);
      }
    }
    EXPECT_TRUE((*executor)->shutdown().has_value());
    EXPECT_EQ(traces.agree(world()), 24u);
  };
  std::vector<std::vector<TokenId>> once, again;
  ASSERT_NO_FATAL_FAILURE(play_sampled(once));
  ASSERT_NO_FATAL_FAILURE(play_sampled(again));
  EXPECT_EQ(once, again);
  EXPECT_NE(once[0], once[4]);  // the same prompt with another seed
}

// B043. proves R4.3, R4.6 at degree n: a decoding request is dropped while another one is between two chunks
// of its prompt, and a third takes its slot; every rank holds the same, and both get what they get alone.
TEST_P(TensorParallel, ADropBetweenChunksLeavesEveryRankWithTheSameRequests) {
  const Asked first{.prompt = random_prompt(180, 1)}, second{.prompt = random_prompt(20, 2)},
      third{.prompt = random_prompt(70, 3)};
  std::vector<Got> first_alone, third_alone;
  {
    auto executor = start_executor(small_options(world()));
    ASSERT_TRUE(executor.has_value());
    Driver driver(**executor);
    first_alone = driver.solo(first, 6, 64);
    third_alone = driver.solo(third, 6);
  }
  Traces traces;
  ExecutorOptions options = small_options(world());
  options.hash_residual = true;
  options.nan_fill_freed = true;
  options.on_step = [&](const rank::StepTrace& trace) { traces.add(trace); };
  auto executor = start_executor(options);
  ASSERT_TRUE(executor.has_value());
  Driver driver(**executor);
  const RequestId one = driver.add(first), two = driver.add(second);
  driver.run({driver.row(one, 64), driver.row(two)});
  driver.run({driver.row(two)});
  driver.run({driver.row(one, 64)});  // its second chunk, of three
  const int slot = driver.slot(two);
  driver.drop(two);
  const RequestId three = driver.add(third, slot);
  driver.run({driver.row(one), driver.row(three)});
  while (driver.tokens(one).size() < 6) driver.run({driver.row(one), driver.row(three)});
  EXPECT_EQ(driver.tokens(one), first_alone);
  EXPECT_EQ(driver.tokens(three), third_alone);
  EXPECT_EQ(traces.agree(world()), 9u);
  // A rank answers a drop with what it held (R4.2), so that this is the live set of every rank.
  driver.drop(one);
  driver.drop(three);
  const rank::Drop gone{two, rank::Expectation::MustBeAbsent};
  EXPECT_TRUE((*executor)->drop({&gone, 1}).has_value());
  EXPECT_TRUE((*executor)->shutdown().has_value());
}

// B043 with its fault: the last rank never gets the drop.
TEST_P(TensorParallel, ADropThatOneRankNeverGetsEndsTheReplica) {
  class LoseDrop final : public rank::Faults {
   public:
    explicit LoseDrop(int rank) : rank_(rank) {}
    Delivery deliver(RankId rank, const rank::Command& command) override {
      const bool drops = std::holds_alternative<rank::DropCommand>(command.body);
      return rank.value == rank_ && drops ? Delivery::Lost : Delivery::Normal;
    }

   private:
    int rank_;
  };
  ExecutorOptions options = small_options(world());
  options.faults = std::make_shared<LoseDrop>(world() - 1);
  options.deadlines.drop = std::chrono::milliseconds(50);
  auto executor = start_executor(options);
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  Driver driver(**executor);
  const RequestId id = driver.add({.prompt = random_prompt(20, 2)});
  driver.run({driver.row(id)});
  const rank::Drop drop{id, rank::Expectation::MustExist};
  const auto dropped = (*executor)->drop({&drop, 1});
  ASSERT_FALSE(dropped.has_value());
  EXPECT_EQ(dropped.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(dropped.error().message, HasSubstr("rank " + std::to_string(world() - 1)));
  EXPECT_EQ((*executor)->submit_step({}).error().kind, ErrorKind::Poisoned);
  EXPECT_EQ((*executor)->shutdown().error().kind, ErrorKind::Poisoned);
}

// A request has no state before its first step: the flag finds nothing to spoil there, and one request's in the next.
TEST_P(TensorParallel, TheNanFaultSpoilsOnlyWhatHasAState) {
  const Asked asked{.prompt = random_prompt(50, 8)};
  for (const int at : {1, 2}) {
    ExecutorOptions options = small_options(world());
    const std::string specs[] = {"kind=nan,rank=" + std::to_string(world() - 1) + ",step=" + std::to_string(at)};
    options.faults = arm_faults(specs, world()).value();
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value());
    Driver driver(**executor);
    const RequestId id = driver.add(asked);
    for (int step = 1; step <= 2; ++step) {
      ASSERT_TRUE((*executor)->submit_step({.rows = {driver.row(id)}}).has_value());
      const auto result = (*executor)->wait_step();
      ASSERT_TRUE(result.has_value()) << result.error().message;
      EXPECT_EQ(result->artifacts.front().choice->non_finite, step == 2 && at == 2 ? 1 : 0);
    }
    driver.drop(id);
    EXPECT_TRUE((*executor)->shutdown().has_value());
  }
}

}  // namespace
}  // namespace tandem::executor
