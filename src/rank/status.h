#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "comm/sequence.h"

namespace tandem::rank {

enum class Phase : std::uint8_t { Idle, AtGate, Running, Failed, Ended };

// What a rank is doing, for the controller that shows progress or names a stuck rank (R3.2).
// Thread: written by the rank's, read by any.
struct Status {
  std::atomic<Phase> phase{Phase::Idle};
  std::atomic<std::uint64_t> command{0};       // number of the command taken last
  std::atomic<std::size_t> command_kind{0};    // its index in CommandBody
  std::atomic<std::int64_t> loaded_bytes{0};   // of weights
  std::atomic<std::int64_t> to_load_bytes{0};  // 0: not known yet
  comm::Progress collective;

  // "runs RunStep number 41, in all_reduce number 1234 (2560 elements)"
  [[nodiscard]] std::string text() const;
};

}  // namespace tandem::rank
