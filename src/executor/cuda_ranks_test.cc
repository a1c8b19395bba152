#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "executor/step_traces.h"
#include "executor/test_driver.h"

// Milestone P1's layout on CUDA ranks: needs two CUDA devices, and is built with the CUDA backend (gates/device.sh p1).
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

ExecutorOptions on_devices(std::vector<int> ordinals) {
  ExecutorOptions options = small_options(static_cast<int>(ordinals.size()));
  options.devices.kind = rank::DeviceKind::Cuda;
  options.devices.ops = rank::OpsKind::Fast;
  options.devices.ordinals = std::move(ordinals);
  options.reserve_bytes = std::int64_t{1} << 30;
  options.max_in_flight = 2;
  return options;
}

// Three requests that prefill by chunks and decode in steps of one kind of row; forced tokens.
std::vector<std::vector<Got>> play(const ExecutorOptions& options) {
  auto executor = start_executor(options);
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  if (!executor) return {};
  Driver driver(**executor);
  std::vector<RequestId> ids;
  for (const int length : {5, 64, 150}) {
    const auto seed = static_cast<std::uint32_t>(length);
    ids.push_back(driver.add({.prompt = random_prompt(length, seed), .forced = random_prompt(8, seed + 1)}));
  }
  driver.run({driver.row(ids[0]), driver.row(ids[1]), driver.row(ids[2], 64)});
  driver.run({driver.row(ids[1]), driver.row(ids[0])});
  driver.run({driver.row(ids[2])});
  for (int i = 0; i < 6; ++i) driver.run({driver.row(ids[2]), driver.row(ids[0]), driver.row(ids[1])}, i % 2);
  std::vector<std::vector<Got>> all;
  for (const RequestId id : ids) {
    all.push_back(driver.tokens(id));
    driver.drop(id);
  }
  const auto ended = (*executor)->shutdown();
  EXPECT_TRUE(ended.has_value()) << ended.error().message;
  return all;
}

class CudaRanks : public ::testing::TestWithParam<comm::AllReduce> {};
INSTANTIATE_TEST_SUITE_P(Choices, CudaRanks, ::testing::Values(comm::AllReduce::Auto, comm::AllReduce::OneShot, comm::AllReduce::Nccl),
                         [](const auto& given) { return std::string(name(given.param)); });

// proves R7.1, R7.2, R7.7 on two devices, and R1.5: replicated computations have equal bits
TEST_P(CudaRanks, GiveTheLogprobsOfOneRankWithinRoundingAndTheSameBitsEveryTimeAndOnEveryRank) {
  const auto one = play(on_devices({0}));
  ExecutorOptions options = on_devices({0, 1});
  options.devices.all_reduce = GetParam();
  const auto two = play(options);
  Traces traces;
  options.hash_residual = true;
  options.on_step = [&](const rank::StepTrace& trace) { traces.add(trace); };
  EXPECT_TRUE(two == play(options));  // hashing changes nothing
  const std::size_t steps = traces.agree(2);
  ASSERT_EQ(steps, 9u);
  for (std::uint64_t step = 1; step <= steps; ++step) EXPECT_EQ(traces.residual_hashes(step), 5u);  // the embedding's and four layers'
  ASSERT_EQ(one.size(), two.size());
  double sum = 0, most = 0;
  int count = 0;
  for (std::size_t r = 0; r < one.size(); ++r) {
    ASSERT_EQ(one[r].size(), two[r].size());
    for (std::size_t i = 0; i < one[r].size(); ++i) {
      const double off = std::abs(one[r][i].logprob - two[r][i].logprob);
      sum += off;
      most = std::max(most, off);
      ++count;
    }
  }
  ASSERT_GT(count, 20);
  std::printf("one rank against two, %s: mean |difference| %.5f, most %.5f\n", std::string(name(GetParam())).c_str(), sum / count, most);
  EXPECT_LT(sum / count, 0.05);
  EXPECT_LT(most, 0.5);
}

// P1's device smoke: any distinct ordinals, in any order, with or without 0
TEST(CudaDevices, ServeInAnyOrder) {
  const auto order = play(on_devices({0, 1}));
  EXPECT_TRUE(order == play(on_devices({1, 0})));
  EXPECT_TRUE(play(on_devices({0})) == play(on_devices({1})));
}

// proves R5.1: the smallest rank decides for all, in slots too
TEST(CudaDevices, ARankWithLessMemoryDecidesForAll) {
  ExecutorOptions options = on_devices({0, 1});
  options.kv_bytes.reset();
  int pages[2];
  for (int less = 0; less < 2; ++less) {
    options.memory_bytes.assign(2, std::int64_t{3} << 30);
    if (less == 1) options.memory_bytes.back() -= std::int64_t{20} << 20;
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    pages[less] = (*executor)->capacity().pages;
    Driver driver(**executor);
    EXPECT_EQ(driver.solo({.prompt = random_prompt(100, 3)}, 2).size(), 2u);
  }
  EXPECT_LE(pages[1], pages[0]);
}

// proves R2.3, R3.4 with real devices: a rank fails while its peer's kernels wait in an all-reduce
TEST_P(CudaRanks, ARankThatFailsInAStepEndsTheReplicaAtOnce) {
  for (const int bad : {0, 1}) {
    ExecutorOptions options = on_devices({0, 1});
    options.devices.all_reduce = GetParam();
    options.faults = std::make_shared<FailAtCommand7>(bad);
    auto executor = start_executor(options);
    ASSERT_TRUE(executor.has_value());
    Driver driver(**executor);
    const RequestId id = driver.add({.prompt = random_prompt(64, 3)});
    driver.run({driver.row(id)});
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE((*executor)->submit_step({.rows = {driver.row(id)}}).has_value());
    const auto step = (*executor)->wait_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_THAT(step.error().message, HasSubstr("[rank " + std::to_string(bad) + "] RunStep number 7: the device fell off the bus"));
    EXPECT_EQ((*executor)->shutdown().error().kind, ErrorKind::Poisoned);  // every rank ended in time
    std::printf("%s: rank %d fails, all ranks ended after %.3f s\n", std::string(name(GetParam())).c_str(), bad,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

}  // namespace
}  // namespace tandem::executor
