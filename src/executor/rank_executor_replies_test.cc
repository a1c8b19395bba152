#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "executor/test_protocol.h"

namespace tandem::executor {
namespace {

// proves R2.2
TEST_P(Protocol, ASecondReplyIsFatal) {
  ASSERT_NO_FATAL_FAILURE(start());
  hooks_->on_send = [&](RankId rank, Reply reply) {
    std::vector<Reply> replies;
    if (rank == RankId{0}) replies.push_back(reply);
    replies.push_back(std::move(reply));
    return replies;
  };
  // In a world of one the set is complete before the second comes: the next command meets it.
  const bool failed = !run_step() || !executor_->ping();
  EXPECT_TRUE(failed);
  expect_poisoned("rank 0 replies to command number 6");
}

// proves R2.2
TEST_P(Protocol, AReplyOfTheWrongKindIsFatal) {
  const auto wrong = [&](RankId rank) -> rank::Answer {
    if (rank.value == 0) return rank::Ack{};  // rank 0 owes artifacts
    return rank::StepResult{};                // the others do not
  };
  for (const int liar : {0, world() - 1}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());
    hooks_->on_send = [&](RankId rank, Reply reply) {
      if (rank.value == liar) reply.answer = wrong(rank);
      return one(std::move(reply));
    };
    const auto step = run_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Protocol);
    EXPECT_THAT(step.error().message, HasSubstr("is no answer to RunStep"));
    expect_poisoned("is no answer to RunStep");
  }
}

// proves R2.2
TEST_P(Protocol, ADropAnswerOfTheWrongLengthIsFatal) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_TRUE(run_step().has_value());
  hooks_->on_send = [&](RankId rank, Reply reply) {
    if (rank == last()) reply.answer = rank::DropAck{{true, true}};
    return one(std::move(reply));
  };
  const rank::Drop drop{RequestId{1}, rank::Expectation::MustExist};
  EXPECT_EQ(executor_->drop({&drop, 1}).error().kind, ErrorKind::Protocol);
  expect_poisoned("a DropAck is no answer to DropRequests");
}

// proves R2.2
TEST_P(Protocol, AReplyOfARankOutOfRangeIsFatal) {
  for (const int stranger : {-1, world()}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());
    hooks_->on_send = [&](RankId, Reply reply) {
      reply.rank = RankId{stranger};
      return one(std::move(reply));
    };
    EXPECT_EQ(run_step().error().kind, ErrorKind::Protocol);
    expect_poisoned("ranks are 0 to " + std::to_string(world() - 1));
  }
}

// proves R1.6
TEST_P(Protocol, AReplyToAnotherCommandIsFatal) {
  for (const int off : {-1, 1, 1000}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());
    hooks_->on_send = [&](RankId rank, Reply reply) {
      if (rank == last()) reply.number += static_cast<std::uint64_t>(off);
      return one(std::move(reply));
    };
    EXPECT_EQ(run_step().error().kind, ErrorKind::Protocol);
    expect_poisoned("numbers 6 to 6 are open");
  }
}

// proves R1.6: a reply that comes after its command has failed is never taken for the next one
TEST_P(Ranks, ALateReplyIsNotTakenForTheNextCommands) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::vector<Reply> held;
  hooks_->on_send = [&](RankId rank, Reply reply) {
    if (rank != last()) return one(std::move(reply));
    if (held.empty()) {  // the step's: kept back, and an honest-looking one goes in its place
      held.push_back(reply);
      return one(std::move(reply));
    }
    return std::exchange(held, {});  // instead of the ping's
  };
  ASSERT_TRUE(run_step().has_value());
  EXPECT_EQ(executor_->ping().error().kind, ErrorKind::Protocol);
  expect_poisoned("replies to command number 6: numbers 7 to 7 are open");
}

// proves R2.3 and R3.4: peers are in a collective that the failed rank never enters
TEST_P(Ranks, TheFirstWorkerErrorEndsTheCollection) {
  for (int bad = 0; bad < world(); ++bad) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());  // with deadlines of minutes
    hooks_->on_before = [&](RankId rank, const Command& command) -> Result<void> {
      if (rank.value == bad && is<rank::RunStepCommand>(command))
        return fail(ErrorKind::Device, "device lost");
      return {};
    };
    const auto step = run_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Device);
    EXPECT_EQ(step.error().message, "[rank " + std::to_string(bad) + "] RunStep number 6: device lost");
    expect_poisoned("device lost");
  }
}

// proves R2.4
TEST_P(Protocol, ArtifactsMayComeInAnyOrder) {
  ASSERT_NO_FATAL_FAILURE(start());
  hooks_->on_send = [](RankId, Reply reply) {
    if (auto* step = std::get_if<rank::StepResult>(&*reply.answer)) {
      std::reverse(step->artifacts.begin(), step->artifacts.end());
    }
    return one(std::move(reply));
  };
  ASSERT_TRUE(executor_->submit_step({.rows = {prefill_row(1, 0, 64), prefill_row(2, 1, 64)}}).has_value());
  const auto step = executor_->wait_step();
  ASSERT_TRUE(step.has_value()) << step.error().message;
  EXPECT_EQ(step->artifacts[0].request, RequestId{2});
  EXPECT_EQ(step->artifacts[1].request, RequestId{1});
}

// proves R2.4 at the executor; checks_test has the whole table
TEST_P(Protocol, AMissingArtifactIsFatal) {
  ASSERT_NO_FATAL_FAILURE(start());
  hooks_->on_send = [](RankId, Reply reply) {
    if (auto* step = std::get_if<rank::StepResult>(&*reply.answer)) step->artifacts.clear();
    return one(std::move(reply));
  };
  EXPECT_EQ(run_step().error().kind, ErrorKind::Protocol);
  expect_poisoned("[artifacts] request 1: no artifact (step of command number 6)");
}

// proves R7.7 (P2a gate 3): compared at every command, not only in tests
TEST_P(Protocol, RanksWhoseCollectivesPartAreDivergence) {
  for (const bool by_hash : {false, true}) {
    hooks_->on_send = nullptr;
    fakes_ = std::make_shared<FakeWorld>(world());
    ASSERT_NO_FATAL_FAILURE(start());
    hooks_->on_send = [&](RankId rank, Reply reply) {
      if (rank.value == world() - 1) ++(by_hash ? reply.collectives.hash : reply.collectives.number);
      return one(std::move(reply));
    };
    const auto step = run_step();
    if (world() == 1) {  // has nobody to part from
      EXPECT_TRUE(step.has_value());
      continue;
    }
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Protocol);
    expect_poisoned(by_hash ? "has begun 2 collectives" : "has begun 3 collectives");
  }
}

// proves R4.2
TEST_P(Protocol, AUniformlyWrongDropAnswerIsDivergence) {
  for (const bool exists : {false, true}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    ASSERT_NO_FATAL_FAILURE(start());
    ASSERT_TRUE(run_step(1).has_value());
    const rank::Drop drop{RequestId{exists ? 1u : 2u},
                          exists ? rank::Expectation::MustBeAbsent : rank::Expectation::MustExist};
    EXPECT_EQ(executor_->drop({&drop, 1}).error().kind, ErrorKind::Protocol);
    expect_poisoned(exists ? "request 1 exists but must be absent" : "request 2 is absent but must exist");
  }
}

// proves R4.2
TEST_P(Ranks, AMixedDropAnswerIsDivergenceAndNamesTheRank) {
  for (const auto expectation : {rank::Expectation::MustExist, rank::Expectation::MustBeAbsent}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());
    ASSERT_TRUE(run_step(1).has_value());
    hooks_->on_send = [&](RankId rank, Reply reply) {
      const bool wanted = expectation == rank::Expectation::MustExist;
      reply.answer = rank::DropAck{{rank == last() ? !wanted : wanted}};
      return one(std::move(reply));
    };
    const rank::Drop drop{RequestId{1}, expectation};
    EXPECT_EQ(executor_->drop({&drop, 1}).error().kind, ErrorKind::Protocol);
    expect_poisoned("on rank " + std::to_string(world() - 1) + " of " + std::to_string(world()) + " ranks");
  }
}

}  // namespace
}  // namespace tandem::executor
