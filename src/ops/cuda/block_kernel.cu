#include "ops/cuda/block_kernel.cuh"
#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/grid_barrier.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/matrix_units.cuh"

// The block between two mixers for few tokens, in one launch of one block a multiprocessor.
//
// A step of few tokens is a stream of weights through the device; everything else has to happen while they flow.
// So one warp (the producer) does nothing but fetch weights, 16 KiB units in the order of use, into a ring in shared
// memory. Weights depend on nothing: it starts before the mixer has ended and does not stop at the grid barriers
// between the products. It asks for few units at a time, and for fewer yet while nobody multiplies: whatever is asked
// for stands in a queue before the barriers' and the other warps' own small loads, whose latency is what the ring has
// to bridge. (With the whole ring in flight at once a longer ring won nothing: every barrier took longer by as much.)
// The other warps multiply what has arrived:
//
//   out:      partial sums of [T, H]            -> scratch; barrier
//   norm:     residual += sum of the partials, then the norm of [T, H], every block for itself, into shared memory
//   gate|up:  whole tiles, SwiGLU               -> act; barrier
//   down:     partial sums                      -> scratch; barrier
//   norm:     as above
//   next:     whole tiles                       -> projected
//
// With more than one token that is too much to read for every block: the sums of the partials are dealt to the
// blocks, and one barrier more gathers them.
//
// The stages stand in one loop rather than one after another, because code that every block runs once a layer comes
// cold from memory: written out, a fifth of the consumers' time was waiting for instructions.
//
// Sums have a fixed order: 64 inputs a warp and unit, units in order, warps in order, pieces of a strip in order.
namespace tandem::ops::cuda {
namespace {

constexpr int kConsumerThreads = kBlockConsumers * 32;
constexpr int kThreads = kConsumerThreads + 32;

enum { kOut, kGateUp, kDown, kNext, kProducts };

__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads) : "memory"); }

struct Ring {
  unsigned char* memory;
  std::uint64_t *full, *empty;
  int stages;
  int at = 0, phase = 0;

  __device__ __forceinline__ unsigned char* stage() const { return memory + at * kUnitBytes; }
  __device__ __forceinline__ void advance() {
    if (++at == stages) {
      at = 0;
      phase ^= 1;
    }
  }
};

// The block's units of one product, worked out once: the rest of the kernel divides nothing.
struct Run {
  int units;
  int group, tile, first;      // of the first unit: its strip, and its chunk in it
  int first_slot;              // of the first strip's piece; the others begin here and have slot 0
  int first_chunk, end_chunk;  // inputs needed

  __device__ static Run of(const BlockSplit& split) {
    Run run{};
    const int b = blockIdx.x, begin = split.tiles == 0 ? 0 : split.begin(b);
    if (split.tiles == 0 || split.begin(b + 1) == begin) return run;
    const int strip = begin / split.chunks;
    run.units = split.begin(b + 1) - begin;
    run.group = strip / split.tiles;
    run.tile = strip - run.group * split.tiles;
    run.first = begin - strip * split.chunks;
    run.first_slot = split.whole ? 0 : b - split.first_owner(strip);
    run.first_chunk = split.first_chunk(b);
    run.end_chunk = split.end_chunk(b);
    return run;
  }
};

struct Shared {
  float4 sums[2][kBlockConsumers][32];  // of a tile, by warp; two, so that one barrier a tile is enough
  float squares[kBlockConsumers];
  Run runs[kProducts];
  int in_flight;  // units that the producer may have asked for and not got; read and written atomically, ordered with nothing
  std::uint64_t full[kBlockMostStages], empty[kBlockMostStages];  // of the ring's stages
};

__device__ void produce(const BlockKernelArgs& args, Shared& shared, Ring ring) {
  Ring landing = ring;  // the unit that has to be there before the next is asked for
  int in_flight = 0;
#pragma unroll 1
  for (int product = kOut; product < kProducts; ++product) {
    const BlockProduct& p = args.products[product];
    const int chunk_step = kUnitCols / 64, strip_step = p.split.chunks * chunk_step, end_row = p.split.tiles * p.rows_a_tile;
    const Run run = shared.runs[product];
    int row = run.tile * p.rows_a_tile, chunk = (run.group * p.split.chunks + run.first) * chunk_step, left_in_strip = p.split.chunks - run.first;
#pragma unroll 1
    for (int left = run.units; left > 0; --left, ring.advance()) {
      barrier_wait(&ring.empty[ring.at], ring.phase ^ 1);
      for (; in_flight >= atomicAdd(&shared.in_flight, 0); --in_flight, landing.advance()) barrier_wait(&landing.full[landing.at], landing.phase);
      ++in_flight;
      barrier_expect(&ring.full[ring.at], kUnitBytes);
      tensor_load(ring.stage(), &p.map, 0, row, 0, chunk, &ring.full[ring.at]);
      chunk += chunk_step;
      if (--left_in_strip > 0) continue;
      left_in_strip = p.split.chunks;
      row += p.rows_a_tile;
      if (row == end_row) row = 0;  // and on with the next group's chunks
      else chunk -= strip_step;
    }
  }
}

struct Consumer {
  const BlockKernelArgs& args;
  Shared& shared;
  Ring ring;
  std::uint8_t* pieces;  // [strips] of out, then of down: blocks that share the strip
  bf16* x;        // [T, x_stride] activations of the product at hand
  float* weight;  // [H] of the norm at hand
  int thread, warp, lane, buffer = 0;
  GridBarrier barrier = {};

  // Rows of a [T, width] matrix into x, inputs [first, first + count); zeros beyond width.
  __device__ void stage(const bf16* from, std::int64_t stride, int first, int count, int width) {
#pragma unroll 1
    for (int t = 0; t < args.tokens; ++t)
#pragma unroll 1
      for (int i = thread * 8; i < count; i += kConsumerThreads * 8) {
        const bool valid = first + i < width;
        async_copy16(x + t * args.x_stride + i, from + t * stride + (valid ? first + i : 0), valid);
      }
    async_commit();
  }
  __device__ void stage_weight(const float* from) {
#pragma unroll 1
    for (int i = thread * 4; i < args.hidden_width; i += kConsumerThreads * 4) async_copy16(weight + i, from + i, true);
    async_commit();
  }
  __device__ void staged() {
    async_wait<0>();
    consumers_sync();
  }
  __device__ void stage_inputs(int product, const bf16* from, std::int64_t stride, int width) {
    const Run& run = shared.runs[product];
    stage(from, stride, run.first_chunk * kUnitCols, (run.end_chunk - run.first_chunk) * kUnitCols, width);
    staged();
  }

  // How many blocks share each strip: divisions that nobody waits for while the mixer runs.
  __device__ void count_pieces() {
    std::uint8_t* to = pieces;
#pragma unroll 1
    for (int product = kOut; product <= kDown; product += kDown - kOut) {
      const BlockSplit& split = args.products[product].split;
#pragma unroll 1
      for (int i = thread; i < split.strips(); i += kConsumerThreads)
        to[i] = static_cast<std::uint8_t>(split.last_owner(i) - split.first_owner(i) + 1);
      to += split.strips();
    }
  }

  // The block's units of a product.
  __device__ void multiply(int product) {
    const Run& run = shared.runs[product];
    const int chunks = args.products[product].split.chunks, tiles = args.products[product].split.tiles;
    const int row = lane / 4, part = lane % 4;
    const bool has_token = row < args.tokens;
    // Each lane takes 16 neighbouring inputs, 32 bytes: the products' k is permuted alike on both sides.
    const bf16* const mine = x + row * args.x_stride + warp * 64 + part * 16 - run.first_chunk * kUnitCols;
    const int first_byte = (warp * kUnitRows + row) * 128;
    const int byte0 = first_byte + (2 * part ^ row) * 16, byte1 = first_byte + ((2 * part + 1) ^ row) * 16;
    int group = run.group, tile = run.tile, first = run.first, slot = run.first_slot;
#pragma unroll 1
    for (int left = run.units, turn = 0; left > 0; turn = (turn + 1) % kBlockConsumers, first = 0, slot = 0) {
      const int count = min(chunks - first, left);
      const bf16* inputs = mine + (group * chunks + first) * kUnitCols;
      float even[4] = {}, odd[4] = {};
#pragma unroll 1
      for (int i = 0; i < count; ++i, inputs += kUnitCols, ring.advance()) {
        uint4 b0 = make_uint4(0, 0, 0, 0), b1 = b0;
        if (has_token) {
          b0 = *reinterpret_cast<const uint4*>(inputs);
          b1 = *reinterpret_cast<const uint4*>(inputs + 8);
        }
        const unsigned char* const stage = ring.stage();
        barrier_wait(&ring.full[ring.at], ring.phase);
        const uint4 low0 = *reinterpret_cast<const uint4*>(stage + byte0), high0 = *reinterpret_cast<const uint4*>(stage + byte0 + 1024);
        const uint4 low1 = *reinterpret_cast<const uint4*>(stage + byte1), high1 = *reinterpret_cast<const uint4*>(stage + byte1 + 1024);
        __syncwarp();
        if (lane == 0) barrier_arrive(&ring.empty[ring.at]);
        multiply_add(even, {low0.x, high0.x, low0.y, high0.y}, b0.x, b0.y);
        multiply_add(odd, {low0.z, high0.z, low0.w, high0.w}, b0.z, b0.w);
        multiply_add(even, {low1.x, high1.x, low1.y, high1.y}, b1.x, b1.y);
        multiply_add(odd, {low1.z, high1.z, low1.w, high1.w}, b1.z, b1.w);
      }
      left -= count;
      shared.sums[buffer][warp][lane] = make_float4(even[0] + odd[0], even[1] + odd[1], even[2] + odd[2], even[3] + odd[3]);
      consumers_sync();
      if (warp == turn) {  // while the others go on
        float c[4] = {};
#pragma unroll
        for (int w = 0; w < kBlockConsumers; ++w) {
          const float4 s = shared.sums[buffer][w][lane];
          c[0] += s.x;
          c[1] += s.y;
          c[2] += s.z;
          c[3] += s.w;
        }
        if (product == kGateUp) {
          close_swiglu(tile, c);
        } else if (product == kNext) {
          close_next(tile, c);
        } else {
          close_partial(tile, group * args.slots_a_group[product == kDown] + slot, c);
        }
      }
      buffer ^= 1;
      if (++tile == tiles) {
        tile = 0;
        ++group;
      }
    }
  }

  // What to do with the sums of a strip, or of this block's part of it, in one warp: lane l has rows l/4 (c[0], c[1])
  // and l/4 + 8 (c[2], c[3]) for tokens 2(l%4) and 2(l%4)+1.
  __device__ void close_partial(int tile, int slot, const float (&c)[4]) const {
    const int row = tile * kUnitRows + lane / 4, token = lane % 4 * 2;
    float* const to = args.partials + static_cast<std::int64_t>(slot * args.tokens + token) * args.hidden_width + row;
    if (token < args.tokens) {
      to[0] = c[0];
      to[8] = c[2];
    }
    if (token + 1 < args.tokens) {
      to[args.hidden_width] = c[1];
      to[args.hidden_width + 8] = c[3];
    }
  }
  __device__ void close_swiglu(int tile, const float (&c)[4]) const {  // gate in rows 0 to 7, up in 8 to 15
    const int channel = tile * 8 + lane / 4, token = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (token + i < args.tokens)
        args.act[(token + i) * args.act_stride + channel] = to_b16(round_b16(silu(round_b16(c[i]))) * round_b16(c[i + 2]));
  }
  __device__ void close_next(int tile, const float (&c)[4]) const {
    const int row = tile * kUnitRows + lane / 4, token = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = token + i % 2, r = row + i / 2 * 8;
      if (t < args.tokens && r < args.projected_width) args.projected[t * args.projected_stride + r] = to_b16(c[i]);
    }
  }

  // old[i] += bf16(sum of a product's partials), two neighbouring values each: number first + i * kConsumerThreads of
  // the token's row. All loads of a piece are in flight at once.
  template <int kPairs>
  __device__ void add_partials(unsigned (&old)[kPairs], int product, int token, int first) const {
    const BlockSplit& split = args.products[product].split;
    const int slots = args.slots_a_group[product == kDown], slot_size = args.tokens * args.hidden_width, half = args.hidden_width / 2;
    const std::uint8_t* counts = pieces + (product == kDown ? args.products[kOut].split.strips() : 0);
    float2 sums[kPairs] = {};
    const float2* from = reinterpret_cast<const float2*>(args.partials) + token * half + first;
#pragma unroll 2
    for (int group = 0; group < split.groups; ++group, counts += split.tiles)
#pragma unroll 2
      for (int piece = 0; piece < slots; ++piece, from += slot_size / 2)
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          const int pair = first + i * kConsumerThreads;
          if (pair >= half || piece >= counts[pair / (kUnitRows / 2)]) continue;
          const float2 part = __ldcg(from + i * kConsumerThreads);
          sums[i].x += part.x;
          sums[i].y += part.y;
        }
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      old[i] = pack_b16(low_f32(old[i]) + round_b16(sums[i].x), high_f32(old[i]) + round_b16(sums[i].y));
  }

  // residual += the product's output, and all of it as it is then in x. Blocks own slices of the residual.
  __device__ void add(int product) {
    const int half = args.hidden_width / 2, pairs = args.tokens * half;
    const int begin = blockIdx.x * args.share, end = min(begin + args.share, pairs);
    if (args.tokens == 1) {
      // Everybody sums everything. Nobody may write what another still reads, so the sum goes to and fro.
      const auto* const from = reinterpret_cast<const unsigned*>(product == kDown ? args.middle : args.residual);
      auto* const to = reinterpret_cast<unsigned*>(product == kDown ? args.residual : args.middle);
      constexpr int kPairs = 5;
#pragma unroll 1
      for (int first = thread; first < half; first += kPairs * kConsumerThreads) {
        unsigned values[kPairs];
#pragma unroll
        for (int i = 0; i < kPairs; ++i) values[i] = first + i * kConsumerThreads < half ? __ldcg(from + first + i * kConsumerThreads) : 0;
        add_partials(values, product, 0, first);
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          const int pair = first + i * kConsumerThreads;
          if (pair < half) reinterpret_cast<unsigned*>(x)[pair] = values[i];
          if (pair >= begin && pair < end) to[pair] = values[i];
        }
      }
      zero_tail();
      consumers_sync();
      return;
    }
    if (begin + thread < end) {
      const int pair = begin + thread, token = pair / half;
      auto* const residual = reinterpret_cast<unsigned*>(args.residual + token * args.residual_stride) + (pair - token * half);
      unsigned value[1] = {*residual};  // read and written by this thread alone
      add_partials(value, product, token, pair - token * half);
      *residual = value[0];
    }
    meet();
    stage(args.residual, args.residual_stride, 0, padded(args.hidden_width), args.hidden_width);
    staged();
  }
  __device__ static int padded(int width) { return (width + kUnitCols - 1) / kUnitCols * kUnitCols; }
  __device__ void zero_tail() {
#pragma unroll 1
    for (int i = args.hidden_width + thread; i < padded(args.hidden_width); i += kConsumerThreads) x[i] = bf16{0};
  }

  // x = norm(x), each row by warps of its own; then fetches the weights of the next norm.
  __device__ void norm(const float* next_weight) {
    const int hidden = args.hidden_width;
    const int team = args.tokens == 1 ? 8 : args.tokens == 2 ? 4 : args.tokens <= 4 ? 2 : 1;  // warps a token
    const int token = warp / team, begin = (warp % team * 32 + lane) * 8, step = team * 32 * 8;
    bf16* const row = x + token * args.x_stride;
    float squares = 0.0f;
    if (token < args.tokens)
      for (int i = begin; i < hidden; i += step) {
        const uint4 v = *reinterpret_cast<const uint4*>(row + i);
        const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) squares += low_f32(words[w]) * low_f32(words[w]) + high_f32(words[w]) * high_f32(words[w]);
      }
    squares = warp_sum(squares);
    if (lane == 0) shared.squares[warp] = squares;
    consumers_sync();
    if (token < args.tokens) {
      float sum = 0.0f;
      for (int w = 0; w < team; ++w) sum += shared.squares[token * team + w];
      const float scale = rsqrtf(sum / static_cast<float>(hidden) + args.eps);
      for (int i = begin; i < hidden; i += step) {
        const uint4 v = *reinterpret_cast<const uint4*>(row + i);
        const float4 w0 = *reinterpret_cast<const float4*>(weight + i), w1 = *reinterpret_cast<const float4*>(weight + i + 4);
        const auto scaled = [scale](unsigned pair, float low, float high) {
          return pack_b16(low_f32(pair) * scale * (1.0f + low), high_f32(pair) * scale * (1.0f + high));
        };
        *reinterpret_cast<uint4*>(row + i) =
            make_uint4(scaled(v.x, w0.x, w0.y), scaled(v.y, w0.z, w0.w), scaled(v.z, w1.x, w1.y), scaled(v.w, w1.z, w1.w));
      }
    }
    consumers_sync();
    if (next_weight) stage_weight(next_weight);
  }

  __device__ void run() {
    stage_weight(args.norms[0]);
    count_pieces();
    wait_for_inputs();
    if (thread == 0) barrier.open(args.barrier);
#pragma unroll 1
    for (int product = kOut; product <= kNext; ++product) {
      if (product != kOut) meet();
      if (product == kOut || product == kDown) {
        const bool out = product == kOut;
        stage_inputs(product, out ? args.mixed : args.act, out ? args.mixed_stride : args.act_stride, out ? args.mixed_width : args.act_width);
      } else {
        add(product - 1);
        norm(product == kGateUp ? args.norms[1] : nullptr);
      }
      if (thread == 0) atomicExch(&shared.in_flight, args.in_flight_busy);
      if (args.products[product].split.tiles > 0) multiply(product);
      if (thread == 0) atomicExch(&shared.in_flight, args.in_flight_idle);
    }
    if (blockIdx.x > 0) return;
    if (thread == 0) barrier.close();
    if (args.products[kNext].split.tiles > 0) return;
#pragma unroll 1
    for (int t = 0; t < args.tokens; ++t)
      for (int i = thread * 8; i < args.hidden_width; i += kConsumerThreads * 8)
        *reinterpret_cast<uint4*>(args.hidden + t * args.hidden_stride + i) = *reinterpret_cast<const uint4*>(x + t * args.x_stride + i);
  }

  // What any thread of any block wrote before is seen by all after.
  __device__ void meet() {
    consumers_sync();
    if (thread == 0) barrier.meet();
    consumers_sync();
  }
};

__global__ void __launch_bounds__(kThreads, 1) block_kernel(const __grid_constant__ BlockKernelArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned char* rest = memory + args.stages * kUnitBytes;
  auto& shared = *reinterpret_cast<Shared*>(rest);
  rest += sizeof(Shared);
  auto* const weight = reinterpret_cast<float*>(rest);
  rest += args.hidden_width * sizeof(float);
  auto* const x = reinterpret_cast<bf16*>(rest);
  auto* const pieces = reinterpret_cast<std::uint8_t*>(x + args.tokens * args.x_stride);
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0; i < args.stages; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.empty[i], kBlockConsumers);
    }
    shared.in_flight = args.in_flight_idle;
  }
  if (threadIdx.x < kProducts) shared.runs[threadIdx.x] = Run::of(args.products[threadIdx.x].split);
  barrier_init_fence();
  __syncthreads();
  let_next_start();
  const int warp = threadIdx.x / 32;
  const Ring ring{memory, shared.full, shared.empty, args.stages};
  if (warp == kBlockConsumers) {
    if (threadIdx.x % 32 == 0) produce(args, shared, ring);
    return;
  }
  Consumer{args, shared, ring, pieces, x, weight, static_cast<int>(threadIdx.x), warp, static_cast<int>(threadIdx.x % 32)}.run();
}

}  // namespace

Result<void> prepare_block_kernel() {
  TANDEM_TRY(checked(cudaFuncSetAttribute(block_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBlockSharedLimit), "block kernel"));
  int resident = 0;
  TANDEM_TRY(checked(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, block_kernel, kThreads, kBlockSharedLimit), "block kernel"));
  if (resident < 1) return fail(ErrorKind::Device, "a block of the decode-block kernel does not fit a multiprocessor");
  return {};
}

// All blocks become resident although the launch is no cooperative one: one fits each multiprocessor, and nothing that
// may share the device with them waits for them before they have all started.
Result<void> launch_block_kernel(const Context& context, const BlockKernelArgs& args) {
  const std::size_t bytes = block_kernel_shared_bytes(args);
  return launch_early(context, "block", block_kernel, {dim3(static_cast<unsigned>(context.multiprocessors)), dim3(kThreads), bytes}, args);
}

std::size_t block_kernel_shared_bytes(const BlockKernelArgs& args) {
  const auto strips = static_cast<std::size_t>(args.products[kOut].split.strips() + args.products[kDown].split.strips());
  return static_cast<std::size_t>(args.stages) * kUnitBytes + sizeof(Shared) + static_cast<std::size_t>(args.hidden_width) * sizeof(float) +
         static_cast<std::size_t>(args.tokens) * static_cast<std::size_t>(args.x_stride) * sizeof(bf16) + strips;
}

}  // namespace tandem::ops::cuda
