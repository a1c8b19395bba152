#include "rank/status.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "rank/command.h"

namespace tandem::rank {
namespace {

template <std::size_t... I>
std::string_view name_of_kind(std::size_t kind, std::index_sequence<I...>) {
  const std::array<std::string_view, sizeof...(I)> names = {name(CommandBody(std::in_place_index<I>))...};
  return kind < names.size() ? names[kind] : "?";
}

}  // namespace

std::string Status::text() const {
  const std::string_view kind =
      name_of_kind(command_kind.load(), std::make_index_sequence<std::variant_size_v<CommandBody>>());
  switch (phase.load()) {
    case Phase::Idle:
      return fmt::format("waits for a command after number {}", command.load());
    case Phase::AtGate:
      return fmt::format("holds {} number {} at the start gate", kind, command.load());
    case Phase::Running:
      return fmt::format("runs {} number {}, {}", kind, command.load(), collective.text());
    case Phase::Failed:
      return fmt::format("failed in {} number {}", kind, command.load());
    case Phase::Ended:
      return "has ended";
  }
  return "?";
}

}  // namespace tandem::rank
