#include "rank/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"

namespace tandem::rank {
namespace {

using ::testing::HasSubstr;

// proves R6.1
TEST(Devices, OrdinalsAreDistinctFrom0To15InAnyOrder) {
  for (const std::vector<int>& right : {std::vector<int>{0}, {1}, {15}, {1, 0}, {3, 9, 15, 2}}) {
    EXPECT_TRUE(check_devices({.ordinals = right}).has_value());
  }
  const std::pair<std::vector<int>, const char*> wrong[] = {{{}, "no rank"},
                                                            {{16}, "device 16 of 16; ordinals are 0 to 15"},
                                                            {{0, -1}, "device -1 of 0,-1"},
                                                            {{2, 1, 2}, "device 2 twice"}};
  for (const auto& [ordinals, message] : wrong) {
    const auto refused = check_devices({.ordinals = ordinals});
    ASSERT_FALSE(refused.has_value()) << message;
    EXPECT_EQ(refused.error().kind, ErrorKind::Invalid);
    EXPECT_EQ(refused.error().field, "--devices");
    EXPECT_THAT(refused.error().message, HasSubstr(message));
  }
}

TEST(Devices, ReferenceOperatorsRunOnTheCpuOnly) {
  EXPECT_TRUE(check_devices({.ops = OpsKind::Reference}).has_value());
  EXPECT_EQ(check_devices({.kind = DeviceKind::Cuda, .ops = OpsKind::Reference}).error().field, "--ops");
}

TEST(Devices, EveryCpuRankGetsABackendAndAGroupOfItsWorld) {
  for (const OpsKind ops : {OpsKind::Fast, OpsKind::Reference}) {
    const DeviceChoice choice{.ops = ops, .ordinals = {4, 2}, .cpu_threads = 1};
    for (const int rank : {0, 1}) {
      const auto backend = make_backend(choice, RankId{rank});
      ASSERT_TRUE(backend.has_value());
      EXPECT_GT((*backend)->device()->total_bytes, 0u);
    }
  }
  for (const int world : {1, 2, 16}) {
    DeviceChoice choice{.ordinals = {}};
    for (int r = 0; r < world; ++r) choice.ordinals.push_back(r);
    const auto group = make_group(choice, std::chrono::seconds(1), std::chrono::seconds(1));
    ASSERT_TRUE(group.has_value());
    EXPECT_EQ((*group)->world(), world);
  }
}

}  // namespace
}  // namespace tandem::rank
