#include <cooperative_groups.h>

#include <algorithm>
#include <string>

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/sample_cuda.h"
#include "ops/cuda/sampler_bytes.h"
#include "ops/philox.h"

namespace tandem::ops::cuda {

// A slot's settings on the device, one fixed-size record a slot.
struct SlotSettings {
  std::uint64_t seed;
  float temperature, top_p, min_p;
  float repetition, presence, frequency;
  std::int32_t top_k;
  std::int32_t min_tokens;
  std::int32_t greedy;
  std::int32_t remembers;  // has penalties: its tokens are counted
  std::int32_t bias_count, stop_count;
  std::int32_t bias_ids[kMaxLogitBias];
  float bias[kMaxLogitBias];
  std::int32_t stop_ids[kMaxStopIds];
};
static_assert(sizeof(SlotSettings) == kSlotSettingsBytes);

// A binding on its way: the record and where it goes.
struct SlotBinding {
  SlotSettings settings;
  std::int32_t slot;
  std::int32_t unused;
};

namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
constexpr int kCluster = 8;  // blocks a row; each keeps its share of the scores in shared memory
constexpr int kPivots = 7;   // thresholds tried in one pass over the scores: 3 bits a pass
constexpr std::uint32_t kSeenInPrompt = 0x80000000u;  // of a count; the other bits count output uses

__global__ void bind_kernel(const SlotBinding* bindings, SlotSettings* settings, std::uint32_t* counts, std::int64_t vocab) {
  const SlotBinding& binding = bindings[blockIdx.x];
  const auto* from = reinterpret_cast<const std::uint32_t*>(&binding.settings);
  auto* to = reinterpret_cast<std::uint32_t*>(settings + binding.slot);
  if (blockIdx.y == 0)
    for (int i = threadIdx.x; i < static_cast<int>(sizeof(SlotSettings) / 4); i += blockDim.x) to[i] = from[i];
  if (!binding.settings.remembers) return;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; i < vocab; i += gridDim.y * blockDim.x)
    counts[binding.slot * vocab + i] = 0;
}

__global__ void note_prompt_kernel(DeviceStep step, const SlotSettings* settings, std::uint32_t* counts, std::int64_t vocab) {
  const int t = step.decode_rows + blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= step.total_tokens) return;
  const TokenInfo token = step.tokens[t];
  if (settings[token.slot].remembers) atomicOr(counts + token.slot * vocab + token.id, kSeenInPrompt);
}

__global__ void count_kernel(DeviceStep step, const std::int32_t* ids, const SlotSettings* settings, std::uint32_t* counts,
                             std::int64_t vocab) {
  for (int i = threadIdx.x; i < step.header->logit_rows; i += blockDim.x) {
    const DeviceLogitRow row = step.logit_rows[i];
    if (row.target < 0 && settings[row.slot].remembers) atomicAdd(counts + row.slot * vocab + ids[i], 1u);
  }
}

// Larger floats have larger keys; -0 and +0 are one.
__device__ __forceinline__ std::uint32_t order_key(float x) {
  const std::uint32_t bits = __float_as_uint(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float key_value(std::uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
// Ranks scores by falling value, equal ones by rising id: the first has the largest rank key.
__device__ __forceinline__ std::uint64_t rank_key(float x, std::int32_t id) {
  return static_cast<std::uint64_t>(order_key(x)) << 32 | static_cast<std::uint32_t>(~id);
}
__device__ __forceinline__ std::int32_t key_id(std::uint64_t key) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
}

struct Tally {
  std::uint64_t count, weight;
};

struct Shared {
  std::uint64_t largest[2];      // alternate, so that one round may be read while the next is written
  Tally tally[2][kPivots];
  int bad;
};

// The scores of one row, spread over the cluster: this block has ids [begin, begin + size).
struct Row {
  float* scores;
  int begin, size;
  Shared* shared;
  int round;
};

// The largest of every thread's `mine` over the cluster.
__device__ std::uint64_t cluster_max(const cg::cluster_group& cluster, Row& row, std::uint64_t mine) {
  const int side = row.round++ & 1;
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const std::uint64_t other = __shfl_xor_sync(0xffffffffu, mine, offset);
    mine = other > mine ? other : mine;
  }
  if (threadIdx.x == 0) row.shared->largest[side] = 0;
  __syncthreads();
  if ((threadIdx.x & 31) == 0)
    atomicMax(reinterpret_cast<unsigned long long*>(&row.shared->largest[side]), static_cast<unsigned long long>(mine));
  cluster.sync();
  std::uint64_t best = 0;
  for (int i = 0; i < kCluster; ++i) {
    const std::uint64_t other = *cluster.map_shared_rank(&row.shared->largest[side], i);
    best = other > best ? other : best;
  }
  return best;
}

// For every pivot: how many scores rank before it (rank key > pivot), and their weight together.
__device__ void tally_before(const cg::cluster_group& cluster, Row& row, float largest, const std::uint64_t (&pivots)[kPivots],
                             bool weights, Tally (&out)[kPivots]) {
  const int side = row.round++ & 1;
  for (int p = threadIdx.x; p < kPivots; p += kThreads) row.shared->tally[side][p] = {0, 0};
  std::uint32_t count[kPivots] = {};
  std::uint64_t weight[kPivots] = {};
  for (int i = threadIdx.x; i < row.size; i += kThreads) {
    const float x = row.scores[i];
    const std::uint64_t key = rank_key(x, row.begin + i);
    const std::uint64_t w = weights ? exact::weight(x - largest) : 0;
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      if (key > pivots[p]) {
        ++count[p];
        weight[p] += w;
      }
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPivots; ++p) {
    const std::uint32_t total = __reduce_add_sync(0xffffffffu, count[p]);
    std::uint64_t sum = weight[p];
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if ((threadIdx.x & 31) == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&row.shared->tally[side][p].count), total);
      atomicAdd(reinterpret_cast<unsigned long long*>(&row.shared->tally[side][p].weight), sum);
    }
  }
  cluster.sync();
#pragma unroll
  for (int p = 0; p < kPivots; ++p) {
    out[p] = {0, 0};
    for (int i = 0; i < kCluster; ++i) {
      const Tally part = *cluster.map_shared_rank(&row.shared->tally[side][p], i);
      out[p].count += part.count;
      out[p].weight += part.weight;
    }
  }
}

// The sum of the weights of scores with rank key >= `from`.
__device__ std::uint64_t weight_from(const cg::cluster_group& cluster, Row& row, float largest, std::uint64_t from) {
  std::uint64_t pivots[kPivots];
#pragma unroll
  for (int p = 0; p < kPivots; ++p) pivots[p] = p == 0 ? from - 1 : ~0ull;
  Tally tally[kPivots];
  tally_before(cluster, row, largest, pivots, true, tally);
  return tally[0].weight;
}

// The smallest rank key that is kept, where an id is kept if fewer than `most` ids rank before it (or, with
// by_weight, if those before it weigh less than `most`). "Before" is monotone, so bits are found from the
// top, three at a time.
__device__ std::uint64_t last_kept(const cg::cluster_group& cluster, Row& row, float largest, std::uint64_t most, bool by_weight) {
  std::uint64_t key = 0;  // keys below it that are still kept are looked for
  for (int shift = 63; shift >= 0; shift -= 3) {
    // shift runs 63, 60, ... , 0: the first pass has one bit, the others three.
    const int width = shift == 63 ? 1 : 3;
    std::uint64_t pivots[kPivots];
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      pivots[p] = p + 1 < (1 << width) ? (key | static_cast<std::uint64_t>(p + 1) << shift) - 1 : ~0ull;
    Tally tally[kPivots];
    tally_before(cluster, row, largest, pivots, by_weight, tally);
    // keys >= candidate number weigh / count tally[p]; the largest candidate with at least `most` of them
    // holds the boundary: everything before it is kept, and its digit stays.
    int digit = 0;
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      if (p + 1 < (1 << width) && (by_weight ? tally[p].weight : tally[p].count) >= most) digit = p + 1;
    key |= static_cast<std::uint64_t>(digit) << shift;
  }
  return key;
}

// Logprobs of `id` and of the best ids in the softmax over the row's scores.
__device__ void report_logprobs(const cg::cluster_group& cluster, Row& row, float largest, std::int32_t id, int top,
                                TokenChoice& choice) {
  const float log_sum = exact::log_of_weights(weight_from(cluster, row, largest, 1));
  const bool writes = cluster.block_rank() == 0 && threadIdx.x == 0;
  if (id >= row.begin && id < row.begin + row.size && threadIdx.x == 0)
    choice.logprob = row.scores[id - row.begin] - largest - log_sum;
  std::uint64_t before = ~0ull;
  int found = 0;
  for (; found < top; ++found) {
    std::uint64_t mine = 0;
    for (int i = threadIdx.x; i < row.size; i += kThreads) {
      const std::uint64_t key = rank_key(row.scores[i], row.begin + i);
      if (key < before && key > mine) mine = key;
    }
    before = cluster_max(cluster, row, mine);
    const float value = key_value(static_cast<std::uint32_t>(before >> 32));
    if (before == 0 || value == -INFINITY) break;
    if (writes) {
      choice.top_ids[found] = key_id(before);
      choice.top_logprobs[found] = value - largest - log_sum;
    }
  }
  if (writes) choice.top_count = found;
}

// Logit bias, the min_tokens mask, penalties and ids without a token, on this block's share.
__device__ void adjust(Row& row, const SlotSettings& slot, const std::uint32_t* counts, int step_index, int vocab) {
  const int end = row.begin + row.size;
  for (int i = threadIdx.x; i < slot.bias_count; i += kThreads) {
    const int id = slot.bias_ids[i];
    if (id >= row.begin && id < end && id < vocab) row.scores[id - row.begin] = exact::add(row.scores[id - row.begin], slot.bias[i]);
  }
  __syncthreads();
  if (step_index < slot.min_tokens)
    for (int i = threadIdx.x; i < slot.stop_count; i += kThreads) {
      const int id = slot.stop_ids[i];
      if (id >= row.begin && id < end && id < vocab) row.scores[id - row.begin] = -INFINITY;
    }
  __syncthreads();
  if (slot.remembers)
    for (int i = threadIdx.x; i < row.size; i += kThreads) {
      const std::uint32_t count = counts[row.begin + i];
      if (count == 0 || row.begin + i >= vocab) continue;
      float l = row.scores[i];
      l = l > 0.0f ? exact::div(l, slot.repetition) : exact::mul(l, slot.repetition);
      const std::uint32_t uses = count & ~kSeenInPrompt;
      if (uses > 0) {
        l = exact::add(l, -exact::mul(slot.frequency, static_cast<float>(uses)));
        l = exact::add(l, -slot.presence);
      }
      row.scores[i] = l;
    }
  for (int i = max(0, vocab - row.begin) + threadIdx.x; i < row.size; i += kThreads) row.scores[i] = -INFINITY;
  __syncthreads();
}

__device__ std::uint64_t best_key(const cg::cluster_group& cluster, Row& row) {
  std::uint64_t mine = 0;
  for (int i = threadIdx.x; i < row.size; i += kThreads) {
    const std::uint64_t key = rank_key(row.scores[i], row.begin + i);
    if (key > mine) mine = key;
  }
  return cluster_max(cluster, row, mine);
}

// Temperature, then minus infinity for what top-k, top-p and min-p exclude. Returns the largest score.
__device__ float restrict_scores(const cg::cluster_group& cluster, Row& row, const SlotSettings& slot) {
  for (int i = threadIdx.x; i < row.size; i += kThreads) row.scores[i] = exact::div(row.scores[i], slot.temperature);
  __syncthreads();
  const float largest = key_value(static_cast<std::uint32_t>(best_key(cluster, row) >> 32));
  std::uint64_t last = 1;
  if (slot.top_k > 0) last = last_kept(cluster, row, largest, static_cast<std::uint64_t>(slot.top_k), false);
  if (slot.top_p < 1.0f) {
    const std::uint64_t sum = weight_from(cluster, row, largest, last > 0 ? last : 1);
    const std::uint64_t needed = exact::top_p_weight(slot.top_p, sum);
    const std::uint64_t by_weight = last_kept(cluster, row, largest, needed, true);
    last = by_weight > last ? by_weight : last;
  }
  for (int i = threadIdx.x; i < row.size; i += kThreads) {
    const float x = row.scores[i];
    const bool kept = rank_key(x, row.begin + i) >= last &&
                      (slot.min_p <= 0.0f || x == largest || exact::exp_negative(x - largest) >= slot.min_p);
    if (!kept) row.scores[i] = -INFINITY;
  }
  __syncthreads();
  return largest;
}

__device__ std::int32_t noisy_choice(const cg::cluster_group& cluster, Row& row, std::uint64_t seed, std::int64_t position) {
  std::uint64_t mine = 0;
  for (int i = threadIdx.x; i < row.size; i += kThreads) {
    if (row.scores[i] == -INFINITY) continue;
    const std::int32_t id = row.begin + i;
    const std::uint64_t key = rank_key(exact::add(row.scores[i], gumbel_noise(seed, position, id)), id);
    if (key > mine) mine = key;
  }
  return key_id(cluster_max(cluster, row, mine));
}

// One cluster a logit row. Every branch below is the same for all blocks of a cluster.
__global__ void __launch_bounds__(kThreads) __cluster_dims__(kCluster, 1, 1)
    sample_kernel(DeviceStep step, SampleArgs args, const SlotSettings* settings, const std::uint32_t* counts,
                  TokenChoice* choices, int share) {
  extern __shared__ float scores[];
  __shared__ Shared shared;
  let_next_start();
  wait_for_inputs();
  const cg::cluster_group cluster = cg::this_cluster();
  const int local = blockIdx.x / kCluster;
  const int index = args.first + local;
  const DeviceLogitRow logit_row = step.logit_rows[index];
  const auto total = static_cast<int>(args.logits.shape[1]);
  const int begin = min(total, static_cast<int>(cluster.block_rank()) * share);
  Row row{scores, begin, min(share, total - begin), &shared, 0};
  const float* logits = args.logits.data + local * args.logits.stride[0];
  TokenChoice& choice = choices[index];
  const bool writes = cluster.block_rank() == 0 && threadIdx.x == 0;

  bool bad = false;
  for (int i = threadIdx.x; i < row.size; i += kThreads) {
    scores[i] = logits[begin + i];
    bad |= !isfinite(scores[i]);
  }
  const bool any_bad = __syncthreads_or(bad);
  const bool scored = logit_row.target >= 0;
  const auto give_up = [&] {
    if (writes) {
      choice.id = scored ? logit_row.target : 0;
      choice.non_finite = 1;
      choice.top_count = 0;
      choice.logprob = 0.0f;
      args.ids[index] = choice.id;
    }
    cluster.sync();
  };
  if (cluster_max(cluster, row, any_bad ? 1 : 0) != 0) return give_up();
  if (writes) {
    choice.non_finite = 0;
    choice.top_count = 0;
    choice.logprob = 0.0f;
  }
  const SlotSettings& slot = settings[logit_row.slot];
  const bool wants_logprobs = logit_row.top_logprobs >= 0;
  const bool raw = args.mode == LogprobsMode::Raw || scored;

  std::int32_t id = logit_row.target;
  float largest = 0.0f;
  if (!scored) {
    adjust(row, slot, counts + static_cast<std::int64_t>(logit_row.slot) * total, logit_row.step_index, args.vocab);
    if (slot.greedy) {
      const std::uint64_t best = best_key(cluster, row);
      id = key_id(best);
      largest = key_value(static_cast<std::uint32_t>(best >> 32));
    } else {
      largest = restrict_scores(cluster, row, slot);
      id = noisy_choice(cluster, row, slot.seed, logit_row.position);
    }
    if (largest == -INFINITY) return give_up();  // the settings mask every id
  }
  if (wants_logprobs) {
    if (raw) {
      for (int i = threadIdx.x; i < row.size; i += kThreads) scores[i] = logits[begin + i];
      __syncthreads();
      largest = key_value(static_cast<std::uint32_t>(best_key(cluster, row) >> 32));
    }
    report_logprobs(cluster, row, largest, id, logit_row.top_logprobs, choice);
  }
  if (writes) {
    choice.id = id;
    args.ids[index] = id;
  }
  cluster.sync();  // nobody leaves while a peer may read its shared memory
}

std::size_t counts_offset(const StepLimits& limits) {
  return (sizeof(SlotSettings) * (static_cast<std::size_t>(limits.slots) + 1) + 255) / 256 * 256;
}

std::uint32_t* counts_of(const StepLimits& limits, void* state) {
  return reinterpret_cast<std::uint32_t*>(static_cast<char*>(state) + counts_offset(limits));
}

int share_of(int vocab) { return (vocab + kCluster - 1) / kCluster; }

}  // namespace

std::size_t Sampler::state_bytes(const StepLimits& limits) {
  return counts_offset(limits) +
         (static_cast<std::size_t>(limits.slots) + 1) * static_cast<std::size_t>(limits.vocab) * sizeof(std::uint32_t);
}

std::size_t Sampler::staging_bytes(const StepLimits& limits) {
  return sizeof(SlotBinding) * static_cast<std::size_t>(limits.max_rows);
}

Result<void> Sampler::place(const StepLimits& limits, void* state, void* staging_device, void* staging_host[2]) {
  limits_ = limits;
  state_ = state;
  staging_device_ = staging_device;
  std::copy_n(staging_host, 2, staging_host_);
  return checked(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      share_of(limits.vocab) * static_cast<int>(sizeof(float))),
                 "sampling over " + std::to_string(limits.vocab) + " ids");
}

Result<void> Sampler::bind(const Context& context, const StepView& step, int parity) {
  auto* bindings = static_cast<SlotBinding*>(staging_host_[parity]);
  int count = 0;
  for (const StepRow& row : step.rows) {
    if (!row.sampling) continue;
    const SamplingParams& p = *row.sampling;
    SlotBinding& binding = bindings[count++];
    SlotSettings& s = binding.settings;
    binding.slot = row.slot.value;
    if (p.logit_bias.size() > kMaxLogitBias || p.stop_ids.size() > kMaxStopIds)
      return fail(ErrorKind::Invalid, std::to_string(p.logit_bias.size()) + " logit biases and " + std::to_string(p.stop_ids.size()) +
                                     " stop ids; at most " + std::to_string(kMaxLogitBias) + " and " +
                                     std::to_string(kMaxStopIds) + " fit a slot");
    s.seed = p.seed;
    s.temperature = p.temperature;
    s.top_p = p.top_p;
    s.min_p = p.min_p;
    s.repetition = p.repetition_penalty;
    s.presence = p.presence_penalty;
    s.frequency = p.frequency_penalty;
    s.top_k = p.top_k;
    s.min_tokens = p.min_tokens;
    s.greedy = is_greedy(p);
    s.remembers = p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
    s.bias_count = static_cast<std::int32_t>(p.logit_bias.size());
    s.stop_count = static_cast<std::int32_t>(p.stop_ids.size());
    for (std::size_t i = 0; i < p.logit_bias.size(); ++i) {
      s.bias_ids[i] = p.logit_bias[i].first;
      s.bias[i] = p.logit_bias[i].second;
    }
    std::copy(p.stop_ids.begin(), p.stop_ids.end(), s.stop_ids);
  }
  if (count == 0) return {};
  TANDEM_TRY(checked(cudaMemcpyAsync(staging_device_, bindings, sizeof(SlotBinding) * static_cast<std::size_t>(count),
                                     cudaMemcpyHostToDevice, context.stream),
                     "sampler bindings"));
  bind_kernel<<<dim3(count, 16), 256, 0, context.stream>>>(static_cast<const SlotBinding*>(staging_device_),
                                                           static_cast<SlotSettings*>(state_), counts_of(limits_, state_),
                                                           limits_.vocab);
  return launched("binding sampler settings");
}

Result<void> Sampler::note_prompt(const Context& context, const DeviceStep& step) {
  const int tokens = step.total_tokens - step.decode_rows;
  if (tokens == 0) return {};
  note_prompt_kernel<<<(tokens + 255) / 256, 256, 0, context.stream>>>(step, static_cast<const SlotSettings*>(state_),
                                                                       counts_of(limits_, state_), limits_.vocab);
  return launched("note_prompt");
}

Result<void> Sampler::sample(const Context& context, const DeviceStep& step, const SampleArgs& args, TokenChoice* choices) {
  const auto rows = static_cast<int>(args.logits.size(0));
  if (rows == 0) return {};
  const int share = share_of(static_cast<int>(args.logits.size(1)));
  return launch_early(context, "sample", sample_kernel,
                      {dim3(static_cast<unsigned>(rows * kCluster)), dim3(kThreads), static_cast<std::size_t>(share) * sizeof(float)}, step, args,
                      static_cast<const SlotSettings*>(state_), counts_of(limits_, state_), choices, share);
}

Result<void> Sampler::count(const Context& context, const DeviceStep& step, const std::int32_t* ids) {
  count_kernel<<<1, 128, 0, context.stream>>>(step, ids, static_cast<const SlotSettings*>(state_),
                                              counts_of(limits_, state_), limits_.vocab);
  return launched("counting sampled ids");
}

}  // namespace tandem::ops::cuda
