#include "executor/fault_flag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/fake_ranks.h"

namespace tandem::executor {
namespace {

using std::chrono::milliseconds;
using testing::decode_row;
using testing::fake_options;
using testing::FakeWorld;
using ::testing::HasSubstr;
using testing::prefill_row;

TEST(FaultFlag, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "kind, rank, and step or command are needed"},
      {"kind=error,rank=0", "kind, rank, and step or command are needed"},
      {"kind=error,step=1", "kind, rank, and step or command are needed"},
      {"rank=0,step=1", "kind, rank, and step or command are needed"},
      {"kind=eror,rank=0,step=1", "kind = eror; error, exception"},
      {"kind=error,rank=x,step=1", "rank = x"},
      {"kind=error,rank=0,step=0", "steps count from 1"},
      {"kind=error,rank=0,step=-1", "step = -1"},
      {"kind=error,rank=0,command=Lode", "command = Lode; Open, Load"},
      {"kind=error,rank=0,step=1,when=now", "when is unknown"},
      {"kind=error,rank", "rank is not name=value"},
      {"kind=nan,rank=0,command=Load", "nan needs a step"},
      {"kind=hang,rank=2,step=1", "rank = 2 of 2 ranks; 0 to 1 works"},
      {"kind=hang,rank=99,command=Load", "rank = 99 of 2 ranks"},
      {"kind=error,rank=0,command=Load,step=3", "only one of them works"},
      {"kind=error,kind=hang,rank=0,step=3", "kind stands there twice"},
      {"kind=error,rank=0,step=1,step=3", "step stands there twice"},
      {"kind=error,rank=0,step=99999999999", "0 to 1000000000 works"},
  };
  for (const auto& [spec, message] : cases) {
    const std::string specs[] = {spec};
    const auto refused = arm_faults(specs, 2);
    ASSERT_FALSE(refused.has_value()) << spec;
    EXPECT_EQ(refused.error().field, "--fault");
    EXPECT_THAT(refused.error().message, HasSubstr(message));
  }
  EXPECT_EQ(*arm_faults({}, 1), nullptr);
}

struct Played {
  Error error;     // the first failure
  int steps = 0;   // that were answered before
  int status = 0;  // the process would have ended with
};

// Starts two ranks with the fault, and runs steps and drops until something fails.
Played play(const std::string& spec) {
  const std::string specs[] = {spec};
  auto faults = arm_faults(specs, 2);
  EXPECT_TRUE(faults.has_value()) << faults.error().message;
  RankExecutorOptions options = fake_options(std::make_shared<FakeWorld>(2));
  options.faults = *faults;
  options.deadlines = {.init = milliseconds(1000),
                       .step = milliseconds(1000),
                       .drop = milliseconds(1000),
                       .abort_grace = milliseconds(1000)};
  Played played;
  options.exit_process = [&](int status) { played.status = status; };
  auto executor = RankExecutor::start(std::move(options));
  if (!executor) {
    played.error = executor.error();
    return played;
  }
  for (; played.steps < 6; ++played.steps) {
    const auto id = static_cast<std::uint64_t>(played.steps + 1);
    Result<void> done = (*executor)->submit_step({.rows = {prefill_row(id, 0, 64)}});
    if (done) {
      const auto step = (*executor)->wait_step();
      if (!step) done = fail(step.error());
    }
    const rank::Drop drop{RequestId{id}, rank::Expectation::MustExist};
    if (done) done = (*executor)->drop({&drop, 1});
    if (!done) {
      played.error = done.error();
      break;
    }
  }
  static_cast<void>((*executor)->shutdown());
  return played;
}

void expect(const std::string& spec, int steps, ErrorKind kind, const char* message, int status = 0) {
  const Played played = play(spec);
  EXPECT_EQ(played.steps, steps) << spec;
  EXPECT_EQ(played.error.kind, kind) << spec << ": " << played.error.message;
  EXPECT_THAT(played.error.message, HasSubstr(message)) << spec;
  EXPECT_EQ(played.status, status) << spec;
}

// proves R3.4, R3.2, R2.2 and R1.6 through the flag
TEST(FaultFlag, EveryKindFailsWhereItIsToldTo) {
  for (const char* rank : {"0", "1"}) {
    const std::string on = std::string(",rank=") + rank;
    const std::string who = std::string("[rank ") + rank + "] ";
    expect("kind=error" + on + ",step=3", 2, ErrorKind::Device,
           (who + "RunStep number 10: a device error").c_str());
    expect("kind=exception" + on + ",step=1", 0, ErrorKind::Device,
           (who + "RunStep number 6: exception").c_str());
    expect("kind=out-of-memory" + on + ",command=Allocate", 0, ErrorKind::Capacity,
           (who + "Allocate number 5: no memory").c_str());
    expect("kind=error" + on + ",command=Load", 0, ErrorKind::Device, (who + "Load number 2").c_str());
    expect("kind=error" + on + ",command=DropRequests", 0, ErrorKind::Device,
           (who + "DropRequests number 7").c_str());
    expect("kind=lost-command" + on + ",step=2", 1, ErrorKind::Deadline, "RunStep number 8 is not answered");
    expect("kind=lost-reply" + on + ",step=2", 1, ErrorKind::Deadline, "RunStep number 8 is not answered");
    expect("kind=silence" + on + ",step=2", 1, ErrorKind::Deadline, "RunStep number 8 is not answered");
    expect("kind=late-reply" + on + ",step=2,delay-ms=5000", 1, ErrorKind::Deadline,
           "RunStep number 8 is not answered", kExitStuckRank);
    expect("kind=late-command" + on + ",step=2,delay-ms=1", 6, ErrorKind::Invalid, "");
    expect("kind=wrong-reply" + on + ",step=2", 1, ErrorKind::Protocol, "replies to command number 9");
    expect("kind=nan" + on + ",step=2", 6, ErrorKind::Invalid, "");  // fake ranks have no state to spoil
  }
}

// proves R3.2
TEST(FaultFlag, AHangEndsTheProcessAndNamesTheRank) {
  expect("kind=hang,rank=1,step=2", 1, ErrorKind::Deadline, "rank 1 runs RunStep number 8", kExitStuckRank);
}

}  // namespace
}  // namespace tandem::executor
