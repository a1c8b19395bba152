#include "comm/sequence.h"

#include <fmt/format.h>

namespace tandem::comm {
namespace {

// splitmix64's finaliser: every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

const char* name(Collective kind) {
  switch (kind) {
    case Collective::None:
      return "no collective";
    case Collective::AllReduce:
      return "all_reduce";
    case Collective::Broadcast:
      return "broadcast";
    case Collective::Barrier:
      return "barrier";
  }
  return "?";
}

std::string Progress::text() const {
  if (const DeviceProgress* const now = device.load()) {
    const std::uint64_t begun = now->begun;
    if (begun == 0) return "before its first collective";
    return fmt::format("{} {} number {} ({} elements)", now->ended < begun ? "in" : "after",
                       name(static_cast<Collective>(now->kind)), begun, now->elements);
  }
  const std::uint64_t at = number.load();
  if (at == 0) return "before its first collective";
  return fmt::format("{} {} number {} ({} elements)", inside.load() ? "in" : "after", name(kind.load()), at,
                     elements.load());
}

std::uint64_t Sequence::begin(Collective kind, std::int64_t elements) {
  ++mark_.number;
  mark_.hash = mix(mark_.hash ^ mix(static_cast<std::uint64_t>(kind)) ^ mix(static_cast<std::uint64_t>(elements) + 17) ^
              mix(mark_.number + 257));
  if (progress_ != nullptr) {
    progress_->kind.store(kind);
    progress_->elements.store(elements);
    progress_->number.store(mark_.number);
    progress_->inside.store(true);
  }
  return mark_.number;
}

void Sequence::end() {
  if (progress_ != nullptr) progress_->inside.store(false);
}

}  // namespace tandem::comm
