#include "ops/cuda/one_shot.h"

#include <algorithm>
#include <array>

#include "comm/all_reduce.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kThreads = 256;
// Beyond it, all_reduce and norm apart take less time (peer_bench: 128 tokens 12.9 us fused, 7.3 + 3.2 apart; 32 tokens 7.2
// fused, 4.3 + 3.2 apart; and a launch is saved).
constexpr std::int64_t kFusedTokens = 64;
constexpr int kPolls = 1024;  // between looks at the abort word, which lies across PCIe

// What a kernel knows of its call.
struct Wire {
  std::uint64_t number = 0;
  unsigned flag = 0;
  unsigned kind = 0;
  unsigned elements = 0;
  bool begin = false, end = false;  // of the collective
  std::int64_t set = 0;             // words before this call's set of slots
  std::int64_t headers = 0;         // words before the set whose first words are headers
  std::int64_t stride = 0;          // words of one sender's slot
  std::int64_t header_stride = 0;
};

__device__ __forceinline__ void store_word(uint4* word, unsigned a, unsigned b, unsigned flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(word), "r"(a), "r"(flag), "r"(b) : "memory");
}
__device__ __forceinline__ uint4 load_word(const uint4* word) {
  uint4 x;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(word) : "memory");
  return x;
}
__device__ __forceinline__ unsigned long long clock_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// One thread's patience.
struct Patience {
  const PeerLink& link;
  const Wire& wire;
  unsigned long long since = 0;
  bool gave_up = false;

  __device__ void give_up(PeerFailure failure, int peer) {
    gave_up = true;
    PeerReport& report = *link.report;
    if (report.failure == 0) {
      report.peer = static_cast<unsigned>(peer);
      report.kind = wire.kind;
      report.elements = wire.elements;
      report.number = wire.number;
      __threadfence_system();
      report.failure = static_cast<unsigned>(failure);
    }
    *link.abort = 1;
    __threadfence_system();
  }

  // Every kPolls polls.
  __device__ bool over(int peer) {
    if (gave_up) return true;
    if (*link.abort != 0) {
      give_up(PeerFailure::Aborted, peer);
      return true;
    }
    const uint4 header = load_word(link.slots[link.rank] + wire.headers + peer * wire.header_stride);
    if (wire.flag != 0 && header.y == wire.flag && header.w == wire.flag && (header.x != wire.elements || header.z != wire.kind)) {
      link.report->peer_kind = header.z;
      link.report->peer_elements = header.x;
      give_up(PeerFailure::Mismatch, peer);
      return true;
    }
    const unsigned long long now = clock_ns();
    if (since == 0) since = now;
    if (now - since < link.limit_ns) return false;
    give_up(PeerFailure::Late, peer);
    return true;
  }

  __device__ uint4 receive(const uint4* word, int peer) {
    for (int polls = 1;; ++polls) {
      const uint4 x = load_word(word);
      if (x.y == wire.flag && x.w == wire.flag) return x;
      if (polls % kPolls == 0 && over(peer)) return x;
    }
  }
};

// The slot that `from` fills on the device of `on`.
__device__ __forceinline__ uint4* slot(const PeerLink& link, const Wire& wire, int on, int from) {
  return link.slots[on] + wire.set + from * wire.stride;
}

// By the first thread of the call: who calls what, and how far the device is.
__device__ void announce(const PeerLink& link, const Wire& wire) {
  for (int peer = 0; peer < link.world; ++peer) {
    if (peer == link.rank) continue;
    uint4* header = link.slots[peer] + wire.headers + link.rank * wire.header_stride;
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(header), "r"(wire.elements), "r"(wire.flag), "r"(wire.kind)
                 : "memory");
  }
  if (!wire.begin) return;
  comm::DeviceProgress& progress = link.report->progress;
  progress.kind = wire.kind;
  progress.elements = wire.elements;
  progress.begun = wire.number;
}

__device__ __forceinline__ unsigned pair_of(const bf16* data, std::int64_t at, std::int64_t elements) {
  unsigned low = 0, high = 0;
  if (at < elements) low = data[at].bits;
  if (at + 1 < elements) high = data[at + 1].bits;
  return low | high << 16;
}

// 4 elements a word, in rank order.
__device__ __forceinline__ void add_word(float (&sum)[4], unsigned a, unsigned b, bool first) {
  const float value[4] = {low_f32(a), high_f32(a), low_f32(b), high_f32(b)};
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = first ? value[i] : sum[i] + value[i];
}

__global__ void __launch_bounds__(kThreads) all_reduce_kernel(PeerLink link, Wire wire, bf16* data, std::int64_t elements) {
  wait_for_inputs();
  if (blockIdx.x == 0 && threadIdx.x == 0) announce(link, wire);
  const std::int64_t words = (elements + kWordElements - 1) / kWordElements;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const auto mine = [&](std::int64_t w) {
    if ((w + 1) * kWordElements <= elements) return *reinterpret_cast<const uint2*>(data + w * kWordElements);
    return make_uint2(pair_of(data, w * 4, elements), pair_of(data, w * 4 + 2, elements));
  };
  for (std::int64_t w = begin; w < words; w += step) {
    const uint2 own = mine(w);
    for (int i = 1; i < link.world; ++i) {
      const int peer = (link.rank + i) % link.world;
      store_word(slot(link, wire, peer, link.rank) + 1 + w, own.x, own.y, wire.flag);
    }
  }
  Patience patience{link, wire};
  for (std::int64_t w = begin; w < words && !patience.gave_up; w += step) {
    const uint2 own = mine(w);
    float sum[4];
    for (int r = 0; r < link.world; ++r) {
      uint4 word = make_uint4(own.x, 0, own.y, 0);
      if (r != link.rank) word = patience.receive(slot(link, wire, link.rank, r) + 1 + w, r);
      add_word(sum, word.x, word.z, r == 0);
    }
    const unsigned low = pack_b16(sum[0], sum[1]), high = pack_b16(sum[2], sum[3]);
    if ((w + 1) * kWordElements <= elements) {
      *reinterpret_cast<uint2*>(data + w * kWordElements) = make_uint2(low, high);
    } else {
      const unsigned pairs[2] = {low, high};
      for (int i = 0; i < 4 && w * 4 + i < elements; ++i)
        data[w * 4 + i].bits = static_cast<std::uint16_t>(pairs[i / 2] >> (16 * (i % 2)));
    }
  }
  // Block 0 is done when its own words are; the others are a matter of nanoseconds.
  if (blockIdx.x == 0 && threadIdx.x == 0 && wire.end && !patience.gave_up) link.report->progress.ended = wire.number;
}

// One block a token, 8 elements (two words) a thread, as norm_kernel. `residual` takes in the sum and is written back.
__global__ void __launch_bounds__(1024) reduce_add_norm_kernel(PeerLink link, Wire wire, const bf16* partial, bf16* residual,
                                                               std::int64_t residual_stride, const float* weight, bf16* y,
                                                               std::int64_t y_stride, int hidden, float eps) {
  __shared__ float scratch[32];
  const int at = threadIdx.x * 8;
  const std::int64_t w = (std::int64_t{blockIdx.x} * hidden + at) / kWordElements;
  let_next_start();
  wait_for_inputs();
  uint4 own{};
  if (at < hidden) {
    own = *reinterpret_cast<const uint4*>(partial + w * kWordElements);
    for (int i = 1; i < link.world; ++i) {
      const int peer = (link.rank + i) % link.world;
      uint4* to = slot(link, wire, peer, link.rank) + 1 + w;
      store_word(to, own.x, own.y, wire.flag);
      store_word(to + 1, own.z, own.w, wire.flag);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) announce(link, wire);
  Patience patience{link, wire};
  float value[8] = {};
  if (at < hidden) {
    auto* row = reinterpret_cast<uint4*>(residual + blockIdx.x * residual_stride + at);
    const uint4 old = *row;
    float low[4], high[4];
    for (int r = 0; r < link.world; ++r) {
      uint4 a = make_uint4(own.x, 0, own.y, 0), b = make_uint4(own.z, 0, own.w, 0);
      if (r != link.rank) {
        const uint4* from = slot(link, wire, link.rank, r) + 1 + w;
        a = patience.receive(from, r);
        b = patience.receive(from + 1, r);
      }
      add_word(low, a.x, a.z, r == 0);
      add_word(high, b.x, b.z, r == 0);
    }
    const unsigned before[4] = {old.x, old.y, old.z, old.w};
    unsigned sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = i < 2 ? low[2 * i] : high[2 * i - 4], next = i < 2 ? low[2 * i + 1] : high[2 * i - 3];
      sums[i] = pack_b16(low_f32(before[i]) + round_b16(x), high_f32(before[i]) + round_b16(next));
      value[2 * i] = low_f32(sums[i]);
      value[2 * i + 1] = high_f32(sums[i]);
    }
    *row = make_uint4(sums[0], sums[1], sums[2], sums[3]);
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares += value[i] * value[i];
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(hidden) + eps);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !patience.gave_up) link.report->progress.ended = wire.number;
  if (at >= hidden) return;
  const float4 w0 = *reinterpret_cast<const float4*>(weight + at);
  const float4 w1 = *reinterpret_cast<const float4*>(weight + at + 4);
  const float factor[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
  unsigned out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[i] = pack_b16(value[2 * i] * scale * (1.0f + factor[2 * i]), value[2 * i + 1] * scale * (1.0f + factor[2 * i + 1]));
  *reinterpret_cast<uint4*>(y + blockIdx.x * y_stride + at) = make_uint4(out[0], out[1], out[2], out[3]);
}

// One block. Two ids a word. Every rank sends, so that a set of slots is never written again too early.
__global__ void __launch_bounds__(kThreads) broadcast_kernel(PeerLink link, Wire wire, std::int32_t* ids, int elements) {
  wait_for_inputs();
  if (threadIdx.x == 0) announce(link, wire);
  const int words = max(1, (elements + 1) / 2);
  for (int w = threadIdx.x; w < words; w += kThreads) {
    const unsigned a = 2 * w < elements ? static_cast<unsigned>(ids[2 * w]) : 0u;
    const unsigned b = 2 * w + 1 < elements ? static_cast<unsigned>(ids[2 * w + 1]) : 0u;
    for (int i = 1; i < link.world; ++i) {
      const int peer = (link.rank + i) % link.world;
      store_word(slot(link, wire, peer, link.rank) + w, a, b, wire.flag);
    }
  }
  Patience patience{link, wire};
  for (int w = threadIdx.x; w < words && !patience.gave_up; w += kThreads) {
    for (int r = link.world - 1; r >= 0; --r) {
      if (r == link.rank) continue;
      const uint4 word = patience.receive(slot(link, wire, link.rank, r) + w, r);
      if (r != 0 || patience.gave_up) continue;
      if (2 * w < elements) ids[2 * w] = static_cast<std::int32_t>(word.x);
      if (2 * w + 1 < elements) ids[2 * w + 1] = static_cast<std::int32_t>(word.z);
    }
  }
  if (threadIdx.x == 0 && wire.end && !patience.gave_up) link.report->progress.ended = wire.number;
}

// One warp; thread r writes to and waits for rank r.
__global__ void meet_kernel(PeerLink link, Wire wire, unsigned long long meeting) {
  wait_for_inputs();
  const int peer = threadIdx.x;
  if (peer == 0 && wire.begin) {
    link.report->progress.kind = wire.kind;
    link.report->progress.elements = 0;
    link.report->progress.begun = wire.number;
  }
  bool met = true;
  if (peer < link.world && peer != link.rank) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(link.meetings[peer] + link.rank), "l"(meeting) : "memory");
    Patience patience{link, wire};
    for (int polls = 1; !patience.gave_up; ++polls) {
      unsigned long long theirs;
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(theirs) : "l"(link.meetings[link.rank] + peer) : "memory");
      if (theirs >= meeting) break;
      if (polls % kPolls == 0) patience.over(peer);
    }
    met = !patience.gave_up;
  }
  met = __all_sync(0xffffffffu, met);
  if (peer == 0 && wire.end && met) link.report->progress.ended = wire.number;
}

__global__ void mark_kernel(PeerReport* report, unsigned kind, unsigned elements, std::uint64_t number, bool begin) {
  wait_for_inputs();
  if (!begin) {
    report->progress.ended = number;
    return;
  }
  report->progress.kind = kind;
  report->progress.elements = elements;
  report->progress.begun = number;
}

Wire wire_of(const PeerLink& link, const PeerCall& call, comm::Collective kind, std::int64_t elements) {
  const std::int64_t parity = static_cast<std::int64_t>(call.call & 1);
  Wire wire{.number = call.number,
            .flag = comm::flag_of_call(call.call),
            .kind = static_cast<unsigned>(kind),
            .elements = static_cast<unsigned>(elements),
            .begin = call.first_piece,
            .end = call.last_piece,
            .headers = parity * link.world * link.words,
            .header_stride = link.words};
  wire.set = wire.headers;
  wire.stride = link.words;
  if (kind == comm::Collective::Broadcast) {
    wire.set = 2 * link.world * link.words + parity * link.world * PeerLink::broadcast_words();
    wire.stride = PeerLink::broadcast_words();
  }
  return wire;
}

}  // namespace

Result<void> load_one_shot() {
  cudaFuncAttributes attributes;
  TANDEM_TRY(checked(cudaFuncGetAttributes(&attributes, all_reduce_kernel), "loading all_reduce"));
  TANDEM_TRY(checked(cudaFuncGetAttributes(&attributes, reduce_add_norm_kernel), "loading reduce_add_norm"));
  TANDEM_TRY(checked(cudaFuncGetAttributes(&attributes, broadcast_kernel), "loading broadcast"));
  TANDEM_TRY(checked(cudaFuncGetAttributes(&attributes, meet_kernel), "loading barrier"));
  return checked(cudaFuncGetAttributes(&attributes, mark_kernel), "loading mark");
}

Result<void> one_shot_all_reduce(const Context& context, const PeerLink& link, const PeerCall& call, bf16* data, std::int64_t elements) {
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return fail(ErrorKind::Invalid, "[comm] all_reduce of data that is not aligned to 16 bytes");
  const std::int64_t words = (elements + kWordElements - 1) / kWordElements;
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>((words + kThreads - 1) / kThreads, 1, 4 * context.multiprocessors));
  return launch_early(context, "all_reduce", all_reduce_kernel, {dim3(blocks), dim3(kThreads)}, link,
                      wire_of(link, call, comm::Collective::AllReduce, elements), data, elements);
}

Result<bool> one_shot_reduce_add_norm(const Context& context, const PeerLink& link, const PeerCall& call, const ReduceAddNormArgs& args,
                                      ResidentBlocks& resident) {
  const std::int64_t tokens = args.residual.size(0), hidden = args.residual.size(1);
  if (tokens == 0 || tokens > kFusedTokens || hidden % 8 != 0 || hidden > 8192 || tokens * hidden > (link.words - 1) * kWordElements) return false;
  const int threads = static_cast<int>((hidden / 8 + 31) / 32 * 32);
  if (resident.threads != threads) {
    int blocks = 0;
    TANDEM_TRY(checked(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reduce_add_norm_kernel, threads, 0), "occupancy of reduce_add_norm"));
    resident = {threads, blocks * context.multiprocessors};
  }
  if (tokens > resident.blocks) return false;
  TANDEM_TRY(launch_early(context, "reduce_add_norm", reduce_add_norm_kernel, {dim3(static_cast<unsigned>(tokens)), dim3(static_cast<unsigned>(threads))},
                          link, wire_of(link, call, comm::Collective::AllReduce, tokens * hidden), args.partial.data, args.residual.data,
                          args.residual.stride[0], args.weight, args.y.data, args.y.stride[0], static_cast<int>(hidden), args.eps));
  return true;
}

Result<void> one_shot_broadcast(const Context& context, const PeerLink& link, const PeerCall& call, std::int32_t* ids, std::int64_t elements) {
  return launch_early(context, "broadcast", broadcast_kernel, {dim3(1), dim3(kThreads)}, link,
                      wire_of(link, call, comm::Collective::Broadcast, elements), ids, static_cast<int>(elements));
}

Result<void> one_shot_meet(const Context& context, const PeerLink& link, std::uint64_t meeting, std::uint64_t number) {
  Wire wire = wire_of(link, {.number = number, .first_piece = number != 0, .last_piece = number != 0}, comm::Collective::Barrier, 0);
  wire.flag = 0;  // of no call: there is no header
  return launch_early(context, "barrier", meet_kernel, {dim3(1), dim3(32)}, link, wire, static_cast<unsigned long long>(meeting));
}

Result<void> mark_progress(const Context& context, PeerReport* report, comm::Collective kind, std::int64_t elements, std::uint64_t number,
                           bool begin) {
  return launch_early(context, "mark", mark_kernel, {dim3(1), dim3(1)}, report, static_cast<unsigned>(kind), static_cast<unsigned>(elements),
                      number, begin);
}

}  // namespace tandem::ops::cuda
