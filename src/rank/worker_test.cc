#include "rank/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace tandem::rank {
namespace {

using ::testing::HasSubstr;

// Writes down what its thread calls.
struct Log {
  std::vector<std::string> calls;  // read once the worker has answered
  std::vector<std::thread::id> threads;
  std::function<void()> on_finish;
};

class LoggingModel final : public RankModel {
 public:
  explicit LoggingModel(std::shared_ptr<Log> log) : log_(std::move(log)) { note("made"); }
  ~LoggingModel() override { note("destroyed"); }
  Result<void> open() override { return note("open"); }
  Result<void> load() override { return note("load"); }
  Result<void> warm_up() override { return note("warm_up"); }
  Result<Measured> measure() override {
    note("measure");
    return Measured{.free_bytes = 1, .slots = 2, .pages = 3};
  }
  Result<void> allocate(const AllocateCommand& sizes) override {
    return note("allocate " + std::to_string(sizes.slots) + " " + std::to_string(sizes.pages));
  }
  Result<std::uint64_t> begin(const Step&) override {
    note("begin " + std::to_string(++ticket_));
    return ticket_;
  }
  Result<StepResult> finish(std::uint64_t ticket) override {
    note("finish " + std::to_string(ticket));
    if (log_->on_finish) log_->on_finish();
    return StepResult{};
  }
  Result<std::vector<bool>> drop(std::span<const Drop> drops) override {
    note("drop " + std::to_string(drops.size()));
    return std::vector<bool>(drops.size(), true);
  }
  Result<void> ping() override { return note("ping"); }
  comm::SequenceMark collectives() const override { return {}; }
  Result<void> close() override { return note("close"); }
  Result<void> spoil(RequestId) override { return {}; }

 private:
  Result<void> note(std::string call) {
    log_->calls.push_back(std::move(call));
    log_->threads.push_back(std::this_thread::get_id());
    return {};
  }
  std::shared_ptr<Log> log_;
  std::uint64_t ticket_ = 0;
};

class WorkerTest : public ::testing::Test {
 protected:
  void start(int max_in_flight = 1) {
    worker_ = std::make_unique<Worker>(
        WorkerOptions{.rank = RankId{3},
                      .make_model = [log = log_](RankId, Status&) -> Result<std::unique_ptr<RankModel>> {
                        return std::make_unique<LoggingModel>(log);
                      },
                      .replies = replies_,
                      .max_in_flight = max_in_flight});
  }
  std::shared_ptr<StartGate> send(CommandBody body, bool release = true) {
    auto gate = std::make_shared<StartGate>();
    EXPECT_TRUE(worker_->try_enqueue({++number_, std::move(body), gate}));
    if (release) gate->release();
    return gate;
  }
  Reply reply() {
    auto came = replies_->pop();
    EXPECT_TRUE(came.has_value());
    return std::move(*came);
  }

  std::shared_ptr<Log> log_ = std::make_shared<Log>();
  std::shared_ptr<Mailbox<Reply>> replies_ = std::make_shared<Mailbox<Reply>>(16);
  std::unique_ptr<Worker> worker_;
  std::uint64_t number_ = 0;
};

// proves R1.2 and R1.6
TEST_F(WorkerTest, OneThreadMakesUsesAndDestroysTheModelAndEveryReplyCarriesNumberAndRank) {
  start();
  const std::vector<CommandBody> commands = {OpenCommand{},
                                             LoadCommand{},
                                             WarmUpCommand{},
                                             MeasureCommand{},
                                             AllocateCommand{.slots = 4, .pages = 5},
                                             PingCommand{},
                                             RunStepCommand{std::make_shared<const Step>()},
                                             DropCommand{{Drop{RequestId{1}}}},
                                             ShutdownCommand{}};
  const std::string_view answers[] = {"Ack", "Ack", "Ack",     "Measured", "Ack",
                                      "Ack", "Ack", "DropAck", "Joined"};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    send(commands[i]);
    const Reply came = reply();
    EXPECT_EQ(came.number, number_);
    EXPECT_EQ(came.rank, RankId{3});
    ASSERT_TRUE(came.answer.has_value()) << came.answer.error().message;
    EXPECT_EQ(name(*came.answer), answers[i]);
  }
  ASSERT_TRUE(worker_->wait_ended(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_THAT(log_->calls,
              ::testing::ElementsAre("made", "open", "load", "warm_up", "measure", "allocate 4 5", "ping",
                                     "begin 1", "finish 1", "drop 1", "close", "destroyed"));
  for (const std::thread::id id : log_->threads) {
    EXPECT_EQ(id, log_->threads[0]);
    EXPECT_NE(id, std::this_thread::get_id());
  }
}

// proves R2.1
TEST_F(WorkerTest, ACancelledCommandIsNeitherRunNorAnswered) {
  start();
  send(OpenCommand{});
  reply();
  const auto gate = send(RunStepCommand{std::make_shared<const Step>()}, false);
  send(PingCommand{});
  EXPECT_FALSE(replies_->try_pop().has_value());
  gate->cancel();
  EXPECT_EQ(reply().number, 3u);
  EXPECT_THAT(log_->calls, ::testing::ElementsAre("made", "open", "ping"));
}

TEST_F(WorkerTest, WithTwoInFlightAStepIsBegunBeforeTheOlderOneIsFinished) {
  start(2);
  send(OpenCommand{});
  reply();
  // The worker stands at the first gate until both steps are queued.
  const auto gate = send(RunStepCommand{std::make_shared<const Step>()}, false);
  send(RunStepCommand{std::make_shared<const Step>()});
  send(RunStepCommand{std::make_shared<const Step>()});
  send(DropCommand{{Drop{RequestId{1}}}});
  gate->release();
  for (std::uint64_t number = 2; number <= 5; ++number) EXPECT_EQ(reply().number, number);
  EXPECT_THAT(log_->calls, ::testing::ElementsAre("made", "open", "begin 1", "begin 2", "finish 1", "begin 3",
                                                  "finish 2", "finish 3", "drop 1"));
}

// proves R3.4
TEST_F(WorkerTest, AfterAnErrorEveryCommandIsAnsweredWithItAndTheModelLivesUntilTheQueueCloses) {
  log_->on_finish = [] { throw std::runtime_error("sticky"); };
  start();
  send(OpenCommand{});
  reply();
  send(RunStepCommand{std::make_shared<const Step>()});
  EXPECT_EQ(reply().answer.error().message, "[rank 3] RunStep number 2: exception: sticky");
  for (const CommandBody& body :
       {CommandBody(PingCommand{}), CommandBody(RunStepCommand{std::make_shared<const Step>()}),
        CommandBody(DropCommand{}), CommandBody(ShutdownCommand{})}) {
    send(body);
    EXPECT_EQ(reply().answer.error().message, "[rank 3] RunStep number 2: exception: sticky");
  }
  EXPECT_EQ(log_->calls.back(), "finish 1");
  EXPECT_THAT(worker_->status().text(), HasSubstr("failed in"));
  worker_->close();
  ASSERT_TRUE(worker_->wait_ended(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(log_->calls.back(), "destroyed");
}

TEST_F(WorkerTest, AFullQueueRefusesAndACommandBeforeOpenIsAnError) {
  start();
  const auto gate = send(PingCommand{}, false);
  int taken = 0;
  for (; taken < 100 && worker_->try_enqueue({100, PingCommand{}, gate}); ++taken) {
  }
  EXPECT_GE(taken, 7);
  EXPECT_LE(taken, 8);
  gate->release();
  EXPECT_THAT(reply().answer.error().message, HasSubstr("Ping number 1: comes before Open"));
}

}  // namespace
}  // namespace tandem::rank
