#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::comm {

// --all-reduce: how ranks on CUDA devices add their partial sums. CPU ranks share memory whatever it says.
enum class AllReduce : std::uint8_t {
  Auto,     // one-shot for small messages, NCCL for the others, as far as the machine has them
  Nccl,     // NCCL for everything
  OneShot,  // peer writes for everything; large messages in pieces
};

[[nodiscard]] constexpr std::string_view name(AllReduce choice) {
  return choice == AllReduce::Auto ? "auto" : choice == AllReduce::Nccl ? "nccl" : "oneshot";
}
[[nodiscard]] constexpr std::optional<AllReduce> all_reduce_named(std::string_view text) {
  for (const AllReduce choice : {AllReduce::Auto, AllReduce::Nccl, AllReduce::OneShot})
    if (name(choice) == text) return choice;
  return std::nullopt;
}

// What a group uses, once it is known what the machine has.
struct AllReducePlan {
  bool one_shot = false;            // for messages up to `one_shot_bytes`
  bool nccl = false;                // for larger ones, or for all without one_shot
  std::int64_t one_shot_bytes = 0;  // largest message in one piece
};

// `peers`: every device reaches every other's memory. `nccl`: the library was found. Empty if the machine lacks what
// the choice needs.
[[nodiscard]] constexpr std::optional<AllReducePlan> plan_all_reduce(AllReduce choice, bool peers, bool nccl,
                                                                     std::int64_t one_shot_bytes) {
  const AllReducePlan plan{.one_shot = peers && choice != AllReduce::Nccl,
                           .nccl = nccl && choice != AllReduce::OneShot,
                           .one_shot_bytes = one_shot_bytes};
  if (choice == AllReduce::OneShot && !plan.one_shot) return std::nullopt;
  if (!plan.one_shot && !plan.nccl) return std::nullopt;
  return plan;
}

// Whether a message goes through NCCL.
[[nodiscard]] constexpr bool takes_nccl(const AllReducePlan& plan, std::int64_t bytes) {
  return plan.nccl && (!plan.one_shot || bytes > plan.one_shot_bytes);
}

// One-shot slots (ops/cuda/one_shot.h): of every sender on every device, twice, since two sets take turns. A slot holds
// a message in words of 16 bytes of which half are data, behind one word of header; broadcasts have slots of their own.
inline constexpr std::int64_t kOneShotWordBytes = 16;
inline constexpr std::int64_t kBroadcastIds = 16384;  // ids in one piece, two in a word
[[nodiscard]] constexpr std::int64_t one_shot_slot_words(std::int64_t message_bytes) { return 1 + (message_bytes + 7) / 8; }
[[nodiscard]] constexpr std::int64_t one_shot_words(int world, std::int64_t slot_words) {
  return 2 * world * (slot_words + kBroadcastIds / 2);
}
// The largest message in one piece, unless it is told: slots of all senders together stay in bounds.
[[nodiscard]] constexpr std::int64_t default_one_shot_bytes(int world) {
  constexpr std::int64_t kAllSenders = std::int64_t{8} << 20;
  return kAllSenders / (world > 2 ? world - 1 : 1) / 16 * 16;
}

// What NCCL keeps of a device: 486 MiB beside the slots on each of two H200s (docs/benchmarks/h200-tp2-p1.md). Not
// measured on more ranks; what it takes beyond this comes out of the reserve.
inline constexpr std::int64_t kNcclBytes = std::int64_t{486} << 20;

// Device memory of one CUDA rank's communicator, for a plan that is made before a device is opened.
[[nodiscard]] constexpr std::int64_t communicator_bytes(AllReduce choice, int world) {
  if (world < 2) return 0;
  const std::int64_t slots = one_shot_words(world, one_shot_slot_words(default_one_shot_bytes(world))) * kOneShotWordBytes;
  return (choice == AllReduce::Nccl ? 0 : slots) + (choice == AllReduce::OneShot ? 0 : kNcclBytes);
}

// The flag that marks the words of one-shot call number `call` (from 1): counts from 1, and skips 0, the mark of a
// word that was never written, when 32 bits wrap.
[[nodiscard]] constexpr std::uint32_t flag_of_call(std::uint64_t call) {
  constexpr std::uint64_t kFlags = 0xffffffffu;  // 1 to 2^32 - 1
  return static_cast<std::uint32_t>((call - 1) % kFlags + 1);
}

// Before the first call of another round through the flags the slots are cleared: a word that large messages alone
// reach could still hold the mark of the same flag, one round ago.
[[nodiscard]] constexpr bool starts_flags_anew(std::uint64_t call) { return call > 1 && flag_of_call(call) == 1; }

}  // namespace tandem::comm
