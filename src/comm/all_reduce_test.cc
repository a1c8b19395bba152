#include "comm/all_reduce.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::comm {
namespace {

TEST(OneShotFlags, CountFromOneAndSkipZeroOnWrap) {
  EXPECT_EQ(flag_of_call(1), 1u);
  const std::uint64_t start = 0xfffffffdu;  // 2^32 - 3
  const std::uint32_t wanted[] = {0xfffffffdu, 0xfffffffeu, 0xffffffffu, 1, 2, 3};
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(flag_of_call(start + i), wanted[i]);
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t call = random() >> (random() % 40);
    EXPECT_NE(flag_of_call(call + 1), 0u);
    EXPECT_NE(flag_of_call(call + 1), flag_of_call(call + 2));
  }
}

// A slot is used by every second call: its flag must differ from the last one it saw.
TEST(OneShotFlags, TheCallsOfOneSlotAlwaysDiffer) {
  for (std::uint64_t call = 0xfffffff0u; call < 0x1'0000'0010u; ++call) EXPECT_NE(flag_of_call(call), flag_of_call(call + 2));
}

TEST(OneShotFlags, SlotsAreClearedOnceEveryRound) {
  EXPECT_FALSE(starts_flags_anew(1));
  EXPECT_FALSE(starts_flags_anew(0xffffffffu));
  EXPECT_TRUE(starts_flags_anew(0x1'0000'0000u));
  EXPECT_FALSE(starts_flags_anew(0x1'0000'0001u));
  EXPECT_TRUE(starts_flags_anew(0x1'ffff'ffffu));
}

TEST(AllReduceChoice, AutoPicksBySizeAndByWhatTheMachineHas) {
  const auto both = plan_all_reduce(AllReduce::Auto, true, true, 1000);
  ASSERT_TRUE(both);
  EXPECT_FALSE(takes_nccl(*both, 1000));
  EXPECT_TRUE(takes_nccl(*both, 1002));
  const auto no_peers = plan_all_reduce(AllReduce::Auto, false, true, 1000);
  ASSERT_TRUE(no_peers);
  EXPECT_TRUE(takes_nccl(*no_peers, 2));
  const auto no_nccl = plan_all_reduce(AllReduce::Auto, true, false, 1000);
  ASSERT_TRUE(no_nccl);
  EXPECT_FALSE(takes_nccl(*no_nccl, 1 << 20));
  EXPECT_FALSE(plan_all_reduce(AllReduce::Auto, false, false, 1000));
}

TEST(AllReduceChoice, WhatIsAskedForIsTakenOrRefused) {
  EXPECT_FALSE(plan_all_reduce(AllReduce::OneShot, false, true, 1000));
  EXPECT_FALSE(takes_nccl(*plan_all_reduce(AllReduce::OneShot, true, true, 1000), 1 << 20));
  EXPECT_FALSE(plan_all_reduce(AllReduce::Nccl, true, false, 1000));
  EXPECT_TRUE(takes_nccl(*plan_all_reduce(AllReduce::Nccl, true, true, 1000), 2));
  for (const AllReduce choice : {AllReduce::Auto, AllReduce::Nccl, AllReduce::OneShot}) EXPECT_EQ(all_reduce_named(name(choice)), choice);
  EXPECT_FALSE(all_reduce_named("ring"));
}

}  // namespace
}  // namespace tandem::comm
