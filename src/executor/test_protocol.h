#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "executor/fake_ranks.h"
#include "executor/rank_executor.h"

// What the tests of the protocol share: worlds of 1, 2 and 4 fake ranks under a real executor. rank_executor_test.cc
// says which worlds.
namespace tandem::executor {

using rank::Command;
using rank::Reply;
using std::chrono::milliseconds;
using testing::decode_row;
using testing::Event;
using testing::fake_options;
using testing::FakeWorld;
using ::testing::HasSubstr;
using testing::Hooks;
using testing::prefill_row;

template <class Body>
bool is(const Command& command) {
  return std::holds_alternative<Body>(command.body);
}

inline std::vector<Reply> none() { return {}; }
inline std::vector<Reply> one(Reply reply) {
  std::vector<Reply> replies;
  replies.push_back(std::move(reply));
  return replies;
}

class Protocol : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  RankId last() const { return RankId{world() - 1}; }

  void start(Deadlines deadlines = {}, int max_in_flight = 1) {
    RankExecutorOptions options = fake_options(fakes_, hooks_);
    options.deadlines = deadlines;
    options.max_in_flight = max_in_flight;
    auto started = RankExecutor::start(std::move(options));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    executor_ = std::move(*started);
  }

  // A step with one prefill row, which every world can run.
  Result<rank::StepResult> run_step(std::uint64_t request = 1, int slot = 0) {
    TANDEM_TRY(executor_->submit_step({.rows = {prefill_row(request, slot, 64)}}));
    return executor_->wait_step();
  }

  // Every operation fails at once with the first failure's reason, and the ranks end (R3.1, R3.2).
  void expect_poisoned(const std::string& reason) {
    ASSERT_TRUE(executor_->poisoned().has_value());
    EXPECT_THAT(executor_->poisoned()->message, HasSubstr(reason));
    const std::string message = executor_->poisoned()->message;
    const rank::Drop drop{RequestId{1}, rank::Expectation::MustExist};
    for (const auto& error :
         {executor_->submit_step({.rows = {prefill_row(9, 3, 64)}}).error(), executor_->wait_step().error(),
          executor_->drop({&drop, 1}).error(), executor_->ping().error(), executor_->shutdown().error(),
          executor_->shutdown().error()}) {
      EXPECT_EQ(error.kind, ErrorKind::Poisoned);
      EXPECT_EQ(error.message, message);
    }
    EXPECT_EQ(fakes_->models_alive.load(), 0);
  }

  std::shared_ptr<FakeWorld> fakes_ = std::make_shared<FakeWorld>(GetParam());
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  std::unique_ptr<RankExecutor> executor_;
};

class Ranks : public Protocol {};  // what needs at least two

}  // namespace tandem::executor
