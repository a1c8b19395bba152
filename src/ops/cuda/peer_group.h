#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "comm/all_reduce.h"
#include "comm/group.h"
#include "ops/norm.h"

namespace tandem::ops::cuda {

struct PeerGroupOptions {
  std::vector<int> ordinals;  // logical device of each rank, 2 to 16
  comm::AllReduce all_reduce = comm::AllReduce::Auto;
  Nanoseconds join_deadline = std::chrono::seconds(120);
  Nanoseconds collective_deadline = std::chrono::seconds(30);
  // Largest message of one one-shot call; 0: 8 MiB shared by the peers that each rank writes to. NCCL is faster above it
  // (peer_bench on two H200: 5 MB 38 against 77 us, 10 MB 75 against 72 us).
  std::int64_t one_shot_bytes = 0;
  std::uint64_t first_call = 1;                         // tests: where the one-shot calls start to count
};

// Whether these devices can work together as asked. Thread: any; opens nothing on a device.
// Errors: Unsupported, with what is missing and what works.
[[nodiscard]] Result<comm::AllReducePlan> plan_peers(const PeerGroupOptions& options);

// Ranks that are threads of one process, each with a CUDA device: NCCL and one-shot peer writes (one_shot.h), by
// message size. join() wants the rank's stream.
//
// Memory: a rank's slots lie on its own device and are written by its peers. They are freed when all ranks have left, or left
// to the process's end if one does not leave within a second.
// abort() sets a word in host memory that every waiting kernel reads, and has a thread of its own call ncclCommAbort.
// Errors: plan_peers'.
[[nodiscard]] Result<std::shared_ptr<comm::Group>> make_peer_group(const PeerGroupOptions& options);

// The fused form of ReduceAddNormArgs, if args.comm is a communicator of make_peer_group and the message is small enough;
// false, with nothing done, if not. Counts as one all_reduce.
[[nodiscard]] Result<bool> peer_reduce_add_norm(const ReduceAddNormArgs& args);

}  // namespace tandem::ops::cuda
