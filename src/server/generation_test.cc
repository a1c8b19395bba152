#include "server/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/chat_format.h"
#include "server/testing/fake_text.h"

namespace tandem::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const testing::FakeText kText;

// Keeps the sinks, so that the test is the engine.
class Puppet final : public engine::Engine {
 public:
  Result<RequestId> submit(engine::Request, std::shared_ptr<engine::EventSink> sink) override {
    if (sinks.size() == refuse_from) return fail(ErrorKind::Overloaded, "full");
    sinks.push_back(std::move(sink));
    return RequestId{sinks.size()};
  }
  void cancel(RequestId request) override { cancelled.push_back(request.value); }
  engine::Load load() const override { return {}; }
  engine::State state() const override { return engine::State::Ready; }
  std::optional<Error> failure() const override { return std::nullopt; }
  std::int32_t max_context() const override { return 1000; }
  std::int32_t vocab() const override { return 300; }
  void drain() override {}
  Result<void> stop() override { return {}; }

  void say(std::size_t choice, std::string text) {
    engine::Delta delta;
    delta.text = std::move(text);
    sinks.at(choice)->on_delta(RequestId{choice + 1}, std::move(delta));
  }
  void finish(std::size_t choice) { sinks.at(choice)->on_finish(RequestId{choice + 1}, {.usage = {1, 1}}); }
  void fail_choice(std::size_t choice, ErrorKind kind) { sinks.at(choice)->on_failure(RequestId{choice + 1}, {kind, "broken"}); }

  std::vector<std::shared_ptr<engine::EventSink>> sinks;
  std::vector<std::uint64_t> cancelled;
  std::size_t refuse_from = 1000;
};

class GenerationTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<Generation>> try_start(bool stream, int choices, std::size_t behind_bytes = 1 << 20) {
    AnswerHead head{.id = "chatcmpl-1", .model = "m", .stream = stream};
    return Generation::start({.engine = puppet_,
                              .metrics = metrics_,
                              .clock = clock_,
                              .format = std::make_unique<ChatFormat>(head, choices, ChatFormat::Reading{}, kText),
                              .stream = stream,
                              .behind_bytes = behind_bytes},
                             std::vector<engine::Request>(static_cast<std::size_t>(choices)));
  }
  std::shared_ptr<Generation> start(bool stream, int choices = 1, std::size_t behind_bytes = 1 << 20) {
    auto started = try_start(stream, choices, behind_bytes);
    EXPECT_TRUE(started);
    (*started)->on_ready([this] { ++wakes_; });
    return *started;
  }

  Puppet puppet_;
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>("m", "0");
  FakeClock clock_;
  int wakes_ = 0;
};

TEST_F(GenerationTest, HeadComesWithTheFirstEventAndNothingBefore) {
  const auto generation = start(true);
  EXPECT_FALSE(generation->take().head);
  puppet_.say(0, "a");
  const auto part = generation->take();
  ASSERT_TRUE(part.head);
  EXPECT_TRUE(part.head->streamed);
  EXPECT_THAT(part.bytes, HasSubstr("\"a\""));
  puppet_.say(0, "b");
  EXPECT_FALSE(generation->take().head);
}

TEST_F(GenerationTest, AStreamIsWokenOncePerTake) {
  const auto generation = start(true);
  puppet_.say(0, "a");
  puppet_.say(0, "b");
  puppet_.say(0, "c");
  EXPECT_EQ(wakes_, 1);
  (void)generation->take();
  puppet_.finish(0);
  EXPECT_EQ(wakes_, 2);
  EXPECT_TRUE(generation->take().end);
}

TEST_F(GenerationTest, AWholeAnswerIsWokenAtItsEndOnly) {
  const auto generation = start(false);
  puppet_.say(0, "a");
  EXPECT_EQ(wakes_, 0);
  puppet_.finish(0);
  EXPECT_EQ(wakes_, 1);
  const auto part = generation->take();
  ASSERT_TRUE(part.head);
  EXPECT_TRUE(part.end);
  EXPECT_THAT(part.head->body, HasSubstr("\"content\":\"a\""));
}

TEST_F(GenerationTest, FailureBeforeTheFirstEventHasItsOwnStatus) {  // proves B153
  const auto generation = start(true);
  puppet_.fail_choice(0, ErrorKind::Device);
  const auto part = generation->take();
  ASSERT_TRUE(part.head);
  EXPECT_EQ(part.head->status, 500);
  EXPECT_TRUE(part.end);
}

TEST_F(GenerationTest, FailureInMidStreamIsAnEventAndNoFinish) {  // proves B153
  const auto generation = start(true);
  puppet_.say(0, "a");
  puppet_.fail_choice(0, ErrorKind::Poisoned);
  const auto part = generation->take();
  EXPECT_EQ(part.head->status, 200);
  EXPECT_THAT(part.bytes, HasSubstr("data: {\"error\":"));
  EXPECT_THAT(part.bytes, Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(part.end);
}

TEST_F(GenerationTest, AFailedChoiceCancelsTheOthers) {
  const auto generation = start(false, 3);
  puppet_.finish(0);
  puppet_.fail_choice(1, ErrorKind::Device);
  const auto part = generation->take();
  EXPECT_EQ(part.head->status, 500);
  EXPECT_THAT(puppet_.cancelled, ElementsAre(3u));
}

TEST_F(GenerationTest, ARefusedChoiceCancelsThoseBeforeIt) {
  puppet_.refuse_from = 2;
  const auto refused = try_start(false, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Overloaded);
  EXPECT_THAT(puppet_.cancelled, ElementsAre(1u, 2u));
}

TEST_F(GenerationTest, ClosingCancelsOnceAndLaterEventsAreDropped) {
  const auto generation = start(true);
  generation->close();
  generation->close();
  EXPECT_THAT(puppet_.cancelled, ElementsAre(1u));
  puppet_.say(0, "late");
  puppet_.fail_choice(0, ErrorKind::Cancelled);
  EXPECT_EQ(generation->take().bytes, "");
  EXPECT_EQ(wakes_, 0);
}

TEST_F(GenerationTest, AReaderTooFarBehindIsCutOff) {
  const auto generation = start(true, 1, 2000);
  for (int i = 0; i < 20; ++i) puppet_.say(0, std::string(100, 'x'));
  EXPECT_TRUE(generation->overflowed());
  EXPECT_THAT(puppet_.cancelled, ElementsAre(1u));
  EXPECT_EQ(generation->take().bytes, "");
}

TEST_F(GenerationTest, WhatIsBeingWrittenCountsAsBehind) {
  const auto generation = start(true, 1, 2000);
  puppet_.say(0, std::string(1500, 'x'));
  (void)generation->take();  // handed to the connection, which has not come back
  puppet_.say(0, std::string(1500, 'x'));
  EXPECT_TRUE(generation->overflowed());
}

TEST_F(GenerationTest, AReaderThatKeepsUpMayReadAnyAmount) {
  const auto generation = start(true, 1, 2000);
  for (int i = 0; i < 100; ++i) {
    puppet_.say(0, std::string(500, 'x'));
    (void)generation->take();
  }
  EXPECT_FALSE(generation->overflowed());
}

TEST_F(GenerationTest, PartsKnowWhenTheirOldestEventCame) {
  const auto generation = start(true);
  clock_.advance(std::chrono::seconds(5));
  puppet_.say(0, "a");
  clock_.advance(std::chrono::seconds(7));
  puppet_.say(0, "b");
  EXPECT_EQ(generation->take().since, TimePoint{} + std::chrono::seconds(5));
}

TEST_F(GenerationTest, AbortEndsTheAnswerWithItsError) {
  const auto generation = start(true);
  puppet_.say(0, "a");
  (void)generation->take();
  generation->abort({ErrorKind::Cancelled, "shut down"});
  const auto part = generation->take();
  EXPECT_THAT(part.bytes, HasSubstr("shut down"));
  EXPECT_TRUE(part.end);
  EXPECT_THAT(puppet_.cancelled, ElementsAre(1u));
}

}  // namespace
}  // namespace tandem::server
