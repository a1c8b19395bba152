#include "rank/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "rank/start_gate.h"

namespace tandem::rank {
namespace {

TEST(Mailbox, KeepsTheOrderAndRefusesWhenFullOrClosed) {
  Mailbox<int> box(2);
  EXPECT_FALSE(box.try_pop().has_value());
  EXPECT_TRUE(box.try_push(1));
  EXPECT_TRUE(box.try_push(2));
  EXPECT_FALSE(box.try_push(3));
  EXPECT_EQ(box.pop(), 1);
  EXPECT_TRUE(box.try_push(4));
  EXPECT_EQ(box.try_pop(), 2);
  EXPECT_EQ(box.pop_until(std::chrono::steady_clock::now()), 4);
  EXPECT_FALSE(box.pop_until(std::chrono::steady_clock::now()).has_value());
  EXPECT_TRUE(box.try_push(5));
  box.close();
  EXPECT_FALSE(box.try_push(6));
  EXPECT_FALSE(box.pop().has_value());  // what is left is forgotten
  EXPECT_TRUE(box.closed());
}

TEST(Mailbox, ManyWritersAndOneReaderLoseNothing) {
  Mailbox<std::unique_ptr<int>> box(4);
  constexpr int kWriters = 4, kEach = 500;
  std::vector<std::jthread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&box, w] {
      for (int i = 0; i < kEach; ++i) {
        while (!box.try_push(std::make_unique<int>(w * kEach + i))) std::this_thread::yield();
      }
    });
  }
  std::vector<int> last(kWriters, -1);
  for (int i = 0; i < kWriters * kEach; ++i) {
    const int value = **box.pop();
    EXPECT_EQ(value % kEach, last[static_cast<std::size_t>(value / kEach)] + 1);
    last[static_cast<std::size_t>(value / kEach)] = value % kEach;
  }
  EXPECT_FALSE(box.try_pop().has_value());
}

TEST(Mailbox, CloseWakesAWaitingReader) {
  Mailbox<int> box(1);
  std::jthread reader([&] { EXPECT_FALSE(box.pop().has_value()); });
  box.close();
}

// proves R2.1
TEST(StartGate, TheFirstDecisionStandsAndReachesEveryone) {
  for (const bool release : {true, false}) {
    StartGate gate;
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 3; ++r) ranks.emplace_back([&] { EXPECT_EQ(gate.wait(), release); });
    release ? gate.release() : gate.cancel();
    release ? gate.cancel() : gate.release();
    EXPECT_EQ(gate.wait(), release);
  }
}

}  // namespace
}  // namespace tandem::rank
