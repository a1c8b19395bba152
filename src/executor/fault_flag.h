#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "rank/faults.h"

namespace tandem::executor {

// Faults on purpose, for `--fault`. Each spec is a list of name=value:
//
//   kind=hang,rank=1,step=30          rank 1 stops in its thirtieth step and never goes on
//   kind=error,rank=0,command=Load    rank 0's Load fails
//   kind=late-reply,rank=1,step=2,delay-ms=500
//
//   error, exception   the command fails on the rank (a device error; a thrown exception)
//   out-of-memory      the command fails for memory
//   hang               the rank's thread blocks until the process ends
//   silence            the rank runs on but sends no reply from then on
//   lost-command       the rank never gets the command
//   late-command       the rank starts it delay-ms late
//   lost-reply         the reply is not sent
//   late-reply         the reply is sent delay-ms late
//   wrong-reply        the reply carries another command's number
//   nan                the state of the step's first request that has one becomes NaN on the rank, before the step
//
// `step` counts the rank's RunStep commands from 1; `command` is a command's name (Open, Load, WarmUp,
// Measure, Allocate, Ping, DropRequests, Shutdown), its first one. Several specs may be armed.
// Every armed and every fired fault is a warning in the log.
//
// A spec that could never fire is refused: a rank that the `world` ranks do not have, a name twice, step beside command.
//
// Null for no specs. Error: Invalid, with the spec and what works.
[[nodiscard]] Result<std::shared_ptr<rank::Faults>> arm_faults(std::span<const std::string> specs, int world);

}  // namespace tandem::executor
