#pragma once

#include <cstdint>

#include "comm/all_reduce.h"
#include "comm/sequence.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"
#include "ops/norm.h"

namespace tandem::ops::cuda {

// One-shot collectives: every rank writes its whole message into a slot of its own on every other rank's device, and
// sums (or picks) what it finds in its own slots.
//
// A slot holds the message in words of 16 bytes: 4 data, 4 flag, 4 data, 4 flag. The flag is the call's
// (comm::flag_of_call): a reader sees the data as soon as the word has crossed, without a fence and without a second
// message. Two sets of slots take turns: nobody writes to a set again before all ranks have left the call between,
// since every call gathers from all ranks. Broadcasts have slots of their own, so that a call of another kind never
// takes a message for its own.
//
// Every wait looks at the abort word and at the clock now and then. A call that gives up leaves its output unspecified,
// says why in this rank's report, and sets the abort word for all.

inline constexpr int kMaxPeers = 16;
inline constexpr std::int64_t kWordElements = 4;           // bf16 in a word; ids: 2
using comm::kBroadcastIds;

// Why a call gave up, as the host reads it. In pinned memory of the host, written by the device.
struct PeerReport {
  comm::DeviceProgress progress;
  volatile std::uint32_t failure;  // PeerFailure
  volatile std::uint32_t peer;     // the rank that was waited for
  volatile std::uint32_t kind;     // of this rank's call
  volatile std::uint32_t elements;
  volatile std::uint32_t peer_kind;  // PeerFailure::Mismatch
  volatile std::uint32_t peer_elements;
  volatile std::uint64_t number;
};
enum class PeerFailure : std::uint32_t { None, Aborted, Late, Mismatch };

// What the kernels of one rank know of the group; passed by value.
struct PeerLink {
  int rank = 0;
  int world = 1;
  uint4* slots[kMaxPeers] = {};                   // of every rank's device, reachable from this one
  unsigned long long* meetings[kMaxPeers] = {};   // [world] words of every rank, for meet()
  std::int64_t words = 0;                         // of one slot of an all-reduce, header included
  PeerReport* report = nullptr;
  volatile std::uint32_t* abort = nullptr;        // one for all ranks, in pinned host memory
  unsigned long long limit_ns = 0;                // of one wait

  [[nodiscard]] static std::int64_t slot_words(std::int64_t message_bytes) { return comm::one_shot_slot_words(message_bytes); }
  [[nodiscard]] static std::int64_t broadcast_words() { return kBroadcastIds / 2; }
  // Of one device's slots: two sets, of every sender.
  [[nodiscard]] std::int64_t total_words() const { return comm::one_shot_words(world, words); }
};

// One call: `call` is its number among one-shot calls from 1, `number` that of the collective it belongs to.
struct PeerCall {
  std::uint64_t call = 1;
  std::uint64_t number = 1;
  bool first_piece = true;
  bool last_piece = true;
};

// Blocks of the fused kernel that the device holds at once, for the block size asked for last.
struct ResidentBlocks {
  int threads = 0;
  int blocks = 0;
};

// Loads every kernel of this file on the current device (R1.5). Error: Device.
[[nodiscard]] Result<void> load_one_shot();

// Sums `elements` bf16 in rank order in float32 and rounds once; in place. `data` is aligned to 16 bytes; at most
// (words - 1) * 4 elements. Blocks are all co-resident.
[[nodiscard]] Result<void> one_shot_all_reduce(const Context& context, const PeerLink& link, const PeerCall& call, bf16* data,
                                               std::int64_t elements);

// The same, then residual and norm (ReduceAddNormArgs), one block a token. False, with nothing done, if the stages apart are
// faster, the message is larger than a slot, the hidden size no multiple of 8, or the blocks cannot all be resident.
[[nodiscard]] Result<bool> one_shot_reduce_add_norm(const Context& context, const PeerLink& link, const PeerCall& call,
                                                    const ReduceAddNormArgs& args, ResidentBlocks& resident);

// Every rank's ids become rank 0's; at most kBroadcastIds. Rank 0 waits too, so that slots may be reused.
[[nodiscard]] Result<void> one_shot_broadcast(const Context& context, const PeerLink& link, const PeerCall& call, std::int32_t* ids,
                                              std::int64_t elements);

// Done once every rank's device has come. `meeting` counts from 1; `number` is 0 outside of a collective.
[[nodiscard]] Result<void> one_shot_meet(const Context& context, const PeerLink& link, std::uint64_t meeting, std::uint64_t number);

// Marks begin or end of a collective that another library runs, for DeviceProgress.
[[nodiscard]] Result<void> mark_progress(const Context& context, PeerReport* report, comm::Collective kind, std::int64_t elements,
                                         std::uint64_t number, bool begin);

}  // namespace tandem::ops::cuda
