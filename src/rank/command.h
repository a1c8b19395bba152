#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/sequence.h"
#include "rank/start_gate.h"
#include "rank/step.h"

namespace tandem::rank {

// What the controller says to a rank. Start-up, in this order:
struct OpenCommand {};     // bind the device, join the communicator
struct LoadCommand {};     // read this rank's share of the weights
struct WarmUpCommand {};   // scratch, and one step of the largest size with every collective
struct MeasureCommand {};  // what could this rank hold?
struct AllocateCommand {   // the minimum over ranks (R5.1): the same numbers on all
  std::int32_t slots = 0;
  std::int32_t pages = 0;
};
// Serving:
struct PingCommand {};
struct RunStepCommand {
  std::shared_ptr<const Step> step;  // one object for all ranks: nobody writes to it
};
struct DropCommand {
  std::vector<Drop> drops;
};
struct ShutdownCommand {};

using CommandBody = std::variant<OpenCommand, LoadCommand, WarmUpCommand, MeasureCommand, AllocateCommand,
                                 PingCommand, RunStepCommand, DropCommand, ShutdownCommand>;

[[nodiscard]] std::string_view name(const CommandBody& body);  // "RunStep"

struct Command {
  std::uint64_t number = 0;  // from 1, the same on every rank, never reused (R1.6)
  CommandBody body;
  std::shared_ptr<StartGate> gate;
};

// What a rank answers (R2's table).
struct Ack {};
struct Measured {
  std::int64_t free_bytes = 0;  // of the device, after all that start-up took
  std::int32_t slots = 0;       // state slots this rank can hold, at most what was asked for
  std::int32_t pages = 0;       // KV pages beside them, after the reserve
};
struct DropAck {
  std::vector<bool> existed;  // one per drop, in order
};
struct Joined {};

using Answer = std::variant<Ack, Measured, StepResult, DropAck, Joined>;

[[nodiscard]] std::string_view name(const Answer& answer);  // "StepResult"

struct Reply {
  std::uint64_t number = 0;  // the command's
  RankId rank;
  Result<Answer> answer;
  comm::SequenceMark collectives;  // begun up to and with this command; those of later steps are not in it
};

}  // namespace tandem::rank
