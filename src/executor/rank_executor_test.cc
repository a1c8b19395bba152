#include "executor/rank_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "executor/fake_ranks.h"

namespace tandem::executor {
namespace {

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

std::vector<Reply> none() { return {}; }
std::vector<Reply> one(Reply reply) {
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
INSTANTIATE_TEST_SUITE_P(Worlds, Protocol, ::testing::Values(1, 2, 4));

class Ranks : public Protocol {};  // what needs at least two
INSTANTIATE_TEST_SUITE_P(Worlds, Ranks, ::testing::Values(2, 4));

// proves R2 and R4.2 where nothing goes wrong
TEST_P(Protocol, RunsStepsDropsAndEnds) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const auto first = run_step(id, 3);
    ASSERT_TRUE(first.has_value()) << first.error().message;
    ASSERT_EQ(first->artifacts.size(), 1u);
    EXPECT_EQ(first->artifacts[0].request, RequestId{id});
    EXPECT_EQ(first->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 64));
    ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(id, 3, 64)}}).has_value());
    ASSERT_TRUE(executor_->wait_step().has_value());
    const rank::Drop drops[] = {{RequestId{id}, rank::Expectation::MustExist},
                                {RequestId{id + 100}, rank::Expectation::MustBeAbsent}};
    ASSERT_TRUE(executor_->drop(drops).has_value());
    ASSERT_TRUE(executor_->ping().has_value());
  }
  EXPECT_EQ(fakes_->steps_begun.load(), 40 * world());
  EXPECT_FALSE(executor_->poisoned().has_value());
  EXPECT_TRUE(executor_->shutdown().has_value());
  EXPECT_EQ(fakes_->models_alive.load(), 0);
  EXPECT_EQ(executor_->submit_step({.rows = {prefill_row(1, 0, 64)}}).error().kind, ErrorKind::Poisoned);
}

// proves R5.1
TEST_P(Protocol, CapacityIsTheMinimumOverRanksAndIsWhatAllAllocate) {
  fakes_->measured.back().pages = 17;
  fakes_->measured.front().slots = 5;
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(executor_->capacity().pages, 17);
  EXPECT_EQ(executor_->capacity().slots, 5);
  EXPECT_EQ(fakes_->allocated_pages.load(), 17 * world());
  EXPECT_EQ(fakes_->allocated_slots.load(), 5 * world());
  EXPECT_EQ(executor_->submit_step({.rows = {prefill_row(1, 5, 64)}}).error().kind, ErrorKind::Invalid);
}

// proves R5.1
TEST_P(Protocol, ARankThatCannotServeOneRequestEndsTheStart) {
  fakes_->measured.back().pages = 15;  // 1024 tokens of context need 16
  const auto refused = RankExecutor::start(fake_options(fakes_));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
  EXPECT_THAT(refused.error().message, HasSubstr("--max-context 961 would fit"));
  EXPECT_EQ(fakes_->models_alive.load(), 0);

  fakes_ = std::make_shared<FakeWorld>(world());
  fakes_->measured.back().pages = 15;
  RankExecutorOptions options = fake_options(fakes_);
  options.context_is_wish = true;
  const auto shorter = RankExecutor::start(std::move(options));
  ASSERT_TRUE(shorter.has_value());
  EXPECT_EQ((*shorter)->capacity().max_context, 961);
}

// proves R2.1
TEST_P(Protocol, NoRankRunsAStepBeforeAllHaveIt) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::atomic<int> reached{0};
  hooks_->on_before = [&](RankId, const Command&) -> Result<void> {
    reached.fetch_add(1);
    return {};
  };
  hooks_->on_deliver = [&](RankId, const Command&) {
    for (int i = 0; i < 200; ++i) std::this_thread::yield();  // time for a rank to run ahead, if it could
    EXPECT_EQ(reached.load(), 0);
    return Hooks::Delivery::Normal;
  };
  EXPECT_TRUE(run_step().has_value());
  EXPECT_EQ(reached.load(), world());
  hooks_->on_deliver = nullptr;
  executor_.reset();  // while `reached` lives: the ranks' last command comes past the hook, too
}

// proves R2.1
TEST_P(Protocol, AFailedEnqueueCancelsTheCommandOnEveryRank) {
  ASSERT_NO_FATAL_FAILURE(start());
  hooks_->on_deliver = [&](RankId rank, const Command&) {
    return rank == last() ? Hooks::Delivery::Refused : Hooks::Delivery::Normal;
  };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Protocol);
  EXPECT_THAT(step.error().message, HasSubstr("does not take RunStep number"));
  expect_poisoned("does not take RunStep");
  EXPECT_EQ(fakes_->steps_begun.load(), 0);
}

// proves R3.2 and R2.2
TEST_P(Protocol, ALostCommandEndsAtTheDeadlineAndNamesWhoWaitsWhere) {
  ASSERT_NO_FATAL_FAILURE(start({.step = milliseconds(50)}));
  hooks_->on_deliver = [&](RankId rank, const Command&) {
    return rank == last() ? Hooks::Delivery::Lost : Hooks::Delivery::Normal;
  };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(step.error().message, HasSubstr("RunStep number 6 is not answered after 50 ms"));
  EXPECT_THAT(step.error().message,
              HasSubstr("rank " + std::to_string(world() - 1) + " waits for a command after number 5"));
  if (world() > 1) {
    EXPECT_THAT(step.error().message,
                HasSubstr("rank 0 runs RunStep number 6, in all_reduce number 2 (100 elements)"));
  }
  expect_poisoned("is not answered");
}

// proves R2.2
TEST_P(Protocol, AMissingReplyEndsAtTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(start({.step = milliseconds(50)}));
  hooks_->on_send = [&](RankId rank, Reply reply) { return rank == last() ? none() : one(std::move(reply)); };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
  expect_poisoned("is not answered");
}

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

// proves R3.4
TEST_P(Protocol, AnExceptionOnARankIsThatRanksError) {
  for (const bool unknown : {false, true}) {
    fakes_ = std::make_shared<FakeWorld>(world());
    hooks_ = std::make_shared<Hooks>();
    ASSERT_NO_FATAL_FAILURE(start());
    hooks_->on_before = [&](RankId rank, const Command&) -> Result<void> {
      if (rank == last() && unknown) throw 7;
      if (rank == last()) throw std::runtime_error("out of cheese");
      return {};
    };
    const auto step = run_step();
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().kind, ErrorKind::Device);
    EXPECT_THAT(step.error().message,
                HasSubstr("[rank " + std::to_string(world() - 1) + "] RunStep number 6: exception"));
    expect_poisoned(unknown ? "unknown type" : "out of cheese");
  }
}

// proves R3.4: any start-up command, any rank; nothing is left running
TEST_P(Protocol, AFailureAtStartIsNamedAndEndsEveryRank) {
  const char* const names[] = {"Open", "Load", "WarmUp", "Measure", "Allocate"};
  for (int kind = 0; kind < 5; ++kind) {
    for (int bad = 0; bad < world(); ++bad) {
      fakes_ = std::make_shared<FakeWorld>(world());
      hooks_ = std::make_shared<Hooks>();
      hooks_->on_before = [&](RankId rank, const Command& command) -> Result<void> {
        if (rank.value == bad && static_cast<int>(command.body.index()) == kind) {
          return fail(ErrorKind::Capacity, "no memory");
        }
        return {};
      };
      const auto started = RankExecutor::start(fake_options(fakes_, hooks_));
      ASSERT_FALSE(started.has_value());
      EXPECT_EQ(started.error().kind, ErrorKind::Capacity);
      EXPECT_EQ(started.error().message, "[rank " + std::to_string(bad) + "] " + names[kind] + " number " +
                                             std::to_string(kind + 1) + ": no memory");
      EXPECT_EQ(fakes_->models_alive.load(), 0);
    }
  }
}

// proves R3.7: Load is limited by progress, not by time
TEST_P(Protocol, ALoadMayTakeLongAsLongAsItMoves) {
  std::mutex mutex;
  std::condition_variable changed;
  int reports = 0;
  std::int64_t seen = 0;
  fakes_->on_load = [&](RankId rank, rank::Status& status) -> Result<void> {
    status.to_load_bytes.store(15);
    if (rank != last()) return {};
    // A byte for every report: the controller's reports come at most 100 ms apart.
    for (int byte = 1; byte <= 15; ++byte) {
      std::unique_lock lock(mutex);
      const int before = reports;
      changed.wait(lock, [&] { return reports > before; });
      status.loaded_bytes.store(byte);
    }
    return {};
  };
  RankExecutorOptions options = fake_options(fakes_);
  options.deadlines.load_progress = milliseconds(1000);
  const auto started = RankExecutor::start(std::move(options), [&](const StartProgress& progress) {
    const std::lock_guard lock(mutex);
    if (progress.phase != "Load") return;
    EXPECT_GE(progress.done_bytes, seen);
    seen = progress.done_bytes;
    ++reports;
    changed.notify_all();
  });
  ASSERT_TRUE(started.has_value()) << started.error().message;
  EXPECT_GE(reports, 15);
}

// proves R3.7
TEST_P(Protocol, ALoadThatStandsStillEndsTheStart) {
  const auto stuck = std::make_shared<Event>();
  fakes_->on_load = [&](RankId rank, rank::Status& status) -> Result<void> {
    status.to_load_bytes.store(100);
    status.loaded_bytes.store(50);
    if (rank == last()) stuck->wait();
    return {};
  };
  RankExecutorOptions options = fake_options(fakes_);
  options.deadlines.load_progress = milliseconds(30);
  options.exit_process = [stuck](int) { stuck->set(); };  // the thread is let go instead of the process
  options.deadlines.abort_grace = milliseconds(10);
  const auto started = RankExecutor::start(std::move(options));
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(started.error().message,
              HasSubstr("rank " + std::to_string(world() - 1) + " runs Load number 2"));
  while (fakes_->models_alive.load() > 0) std::this_thread::yield();
}

// proves R3.2: a rank that neither answers nor ends is named, and the process ends with a status
TEST_P(Protocol, AStuckRankEndsTheProcess) {
  const auto release = std::make_shared<Event>();
  const auto hooks = hooks_;
  const RankId stuck = last();
  std::atomic<int> status{0};
  RankExecutorOptions options = fake_options(fakes_, hooks_);
  options.deadlines = {.step = milliseconds(30), .abort_grace = milliseconds(30)};
  options.exit_process = [&](int code) { status.store(code); };
  auto started = RankExecutor::start(std::move(options));
  ASSERT_TRUE(started.has_value());
  executor_ = std::move(*started);
  hooks->on_before = [release, stuck](RankId rank, const Command&) -> Result<void> {
    if (rank == stuck) release->wait();
    return {};
  };
  const auto step = run_step();
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Deadline);
  EXPECT_EQ(status.load(), 0);  // clients are told first; shutdown() follows
  const auto ended = executor_->shutdown();
  EXPECT_EQ(status.load(), kExitStuckRank);
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().kind, ErrorKind::Deadline);
  EXPECT_THAT(ended.error().message,
              HasSubstr("ranks do not end; rank " + std::to_string(stuck.value) + " runs RunStep number 6"));
  executor_.reset();
  release->set();
  while (fakes_->models_alive.load() > 0) std::this_thread::yield();
}

// proves R3.5: the process is gone in bounded time even if nobody calls shutdown()
TEST_P(Protocol, TheWatchdogEndsAProcessThatLingers) {
  Event ended;
  RankExecutorOptions options = fake_options(fakes_, hooks_);
  options.deadlines.process_exit = milliseconds(20);
  options.exit_process = [&](int code) {
    EXPECT_EQ(code, kExitStuckRank);
    ended.set();
  };
  auto started = RankExecutor::start(std::move(options));
  ASSERT_TRUE(started.has_value());
  executor_ = std::move(*started);
  hooks_->on_before = [](RankId, const Command&) -> Result<void> { return fail(ErrorKind::Device, "gone"); };
  EXPECT_FALSE(run_step().has_value());
  ended.wait();
  expect_poisoned("gone");
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

// proves R2.5: what the controller can see is refused, and does no harm
TEST_P(Protocol, APlanErrorLeavesTheExecutorHealthy) {
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(executor_->submit_step({}).error().kind, ErrorKind::Invalid);
  EXPECT_EQ(executor_->submit_step({.rows = {prefill_row(1, 0, 64), prefill_row(1, 1, 64)}}).error().kind,
            ErrorKind::Invalid);
  EXPECT_EQ(executor_->wait_step().error().kind, ErrorKind::Invalid);
  EXPECT_TRUE(executor_->drop({}).has_value());
  EXPECT_FALSE(executor_->poisoned().has_value());
  EXPECT_TRUE(run_step().has_value());
  ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(1, 0, 64)}}).has_value());
  EXPECT_EQ(executor_->submit_step({.rows = {decode_row(1, 0, 65)}}).error().kind, ErrorKind::Invalid);
  EXPECT_TRUE(executor_->wait_step().has_value());
  EXPECT_TRUE(executor_->shutdown().has_value());
}

// Two steps in flight are answered in their order, whichever rank is ahead.
TEST_P(Protocol, TwoStepsMayBeInFlight) {
  ASSERT_NO_FATAL_FAILURE(start({}, 2));
  for (std::uint64_t id = 1; id <= 30; ++id) {
    ASSERT_TRUE(executor_->submit_step({.rows = {prefill_row(id, 0, 64)}}).has_value());
    ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(id, 0, 64)}}).has_value());
    EXPECT_EQ(executor_->submit_step({.rows = {decode_row(id, 0, 65)}}).error().kind, ErrorKind::Invalid);
    const auto first = executor_->wait_step();
    ASSERT_TRUE(first.has_value()) << first.error().message;
    EXPECT_EQ(first->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 64));
    ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(id, 0, 65)}}).has_value());
    // A drop of another request goes out while two steps are under way.
    const rank::Drop absent{RequestId{1000 + id}, rank::Expectation::MustBeAbsent};
    ASSERT_TRUE(executor_->drop({&absent, 1}).has_value());
    EXPECT_EQ(executor_->wait_step()->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 65));
    EXPECT_EQ(executor_->wait_step()->artifacts[0].choice->id, testing::fake_token(RequestId{id}, 66));
  }
  ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(1, 0, 65)}}).has_value());
  EXPECT_TRUE(executor_->shutdown().has_value());  // waits for the step first
}

// proves R3.1 with a failure while two steps are in flight
TEST_P(Ranks, AFailureWithTwoStepsInFlightEndsBoth) {
  ASSERT_NO_FATAL_FAILURE(start({}, 2));
  hooks_->on_before = [&](RankId rank, const Command& command) -> Result<void> {
    if (rank == last() && command.number == 7) return fail(ErrorKind::Device, "device lost");
    return {};
  };
  ASSERT_TRUE(executor_->submit_step({.rows = {prefill_row(1, 0, 64)}}).has_value());
  ASSERT_TRUE(executor_->submit_step({.rows = {decode_row(1, 0, 64)}}).has_value());
  while (executor_->wait_step().has_value()) {
  }
  expect_poisoned("RunStep number 7: device lost");
}

}  // namespace
}  // namespace tandem::executor
