#include "rank/command.h"

#include <array>

namespace tandem::rank {

std::string_view name(const CommandBody& body) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "Open", "Load", "WarmUp", "Measure", "Allocate", "Ping", "RunStep", "DropRequests", "Shutdown"};
  static_assert(kNames.size() == std::variant_size_v<CommandBody>);
  return kNames[body.index()];
}

std::string_view name(const Answer& answer) {
  static constexpr std::array<std::string_view, 5> kNames = {"Ack", "Measured", "StepResult", "DropAck",
                                                             "Joined"};
  static_assert(kNames.size() == std::variant_size_v<Answer>);
  return kNames[answer.index()];
}

}  // namespace tandem::rank
