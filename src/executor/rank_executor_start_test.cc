#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "executor/test_protocol.h"

namespace tandem::executor {
namespace {

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

}  // namespace
}  // namespace tandem::executor
