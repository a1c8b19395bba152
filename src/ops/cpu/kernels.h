#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bf16.h"
#include "base/cpu_features.h"
#include "base/ids.h"

// The vector kernels behind the CPU operators, apart from the linear ones (linear_kernels.h): one row, head
// or block of work a call, so that the callers can share calls out over threads. Plain pointers and numbers
// only: the files that define them are compiled for one instruction set each.
//
// No result depends on other rows. None allocates. Widths are the family's: kHeadDim 256, kDeltaHeadDim 128.

namespace tandem::ops::cpu {

// softmax(q k^T / 16) v and the output gate for `tokens` tokens of one row and the `group` query heads that
// read one kv head.
struct AttendTask {
  const bf16* k = nullptr;          // this kv head's [64, 256] of page 0
  std::int64_t page_stride = 0;     // elements between pages
  std::int64_t v_offset = 0;        // elements from K to V
  const PageId* pages = nullptr;    // the row's page table
  std::int32_t first_position = 0;  // of token 0; each token sees positions up to its own
  int tokens = 0;
  int group = 0;
  const bf16* q = nullptr;            // [tokens, group, 256]; heads lie 256 apart
  std::int64_t q_stride = 0;          // elements between tokens
  const bf16* gate = nullptr;         // [tokens, group, 256]
  std::int64_t gate_stride = 0;       // between tokens
  std::int64_t gate_head_stride = 0;  // between heads
  bf16* y = nullptr;                  // [tokens, group, 256]; heads lie 256 apart
  std::int64_t y_stride = 0;
  float* scratch = nullptr;  // aligned to 64 bytes, attend_scratch_floats(tokens * group)
};
inline constexpr int kAttendTokens = 16;  // tokens of one prefill task at most
[[nodiscard]] constexpr std::int64_t attend_scratch_floats(std::int64_t queries) {
  const std::int64_t padded = (queries + 15) / 16 * 16;
  // queries and sums [q, 256], scores [q, 64], largest, total and correction [q], a page of K and of V
  return padded * (2 * 256 + 64 + 3) + 2 * 64 * 256;
}

// Convolution and SiLU of a stretch of channels (spec 3.4.2) for all tokens of one row. Moves the window on.
struct ConvTask {
  const bf16* u = nullptr;  // [tokens, channels] inputs
  std::int64_t u_stride = 0;
  int tokens = 0;
  int channels = 0;               // a multiple of 16
  bf16* window = nullptr;         // [channels, 3]
  bool fresh = false;             // take the window as zero
  const float* weight = nullptr;  // [channels, 4]
  float* out = nullptr;           // [tokens, channels], or
  bf16* out_bf16 = nullptr;       // the same in bf16: it has been rounded anyway
  std::int64_t out_stride = 0;
};

struct DeltaGatesTask {
  const bf16* b = nullptr;  // one a token, `in_stride` elements apart
  const bf16* a = nullptr;
  std::int64_t in_stride = 0;
  int tokens = 0;
  float a_log = 0.0f;
  float dt_bias = 0.0f;
  float* beta = nullptr;  // one a token, `out_stride` elements apart
  float* decay = nullptr;
  std::int64_t out_stride = 0;
};

// The recurrence of the gated delta rule for one value head and all tokens of one row.
struct DeltaTask {
  const float* q = nullptr;  // [tokens, 128]
  const float* k = nullptr;
  std::int64_t qk_stride = 0;
  const bf16* v = nullptr;  // [tokens, 128]
  std::int64_t v_stride = 0;
  const float* beta = nullptr;  // one a token, `head_stride` apart
  const float* decay = nullptr;
  std::int64_t head_stride = 0;
  int tokens = 0;
  std::int32_t first_position = 0;  // of token 0
  float* state = nullptr;           // [128 key dim, 128 value dim]
  bool fresh = false;               // take the state as zero
  bf16* o = nullptr;                // [tokens, 128]
  std::int64_t o_stride = 0;
  float* scratch = nullptr;  // kDeltaScratch floats, aligned to 64 bytes; for many tokens only
};
inline constexpr std::int64_t kDeltaScratch = 100 * 1024;

// What one thread needs for any of these.
inline constexpr int kMostAttendHeads = 8;  // of one task
inline constexpr std::int64_t kWorkerScratch =
    std::max(attend_scratch_floats(kAttendTokens * kMostAttendHeads), kDeltaScratch);
static_assert(kWorkerScratch % 16 == 0);

struct LogitScan {
  float largest = 0.0f;
  bool finite = true;
};

struct Kernels {
  // y = bf(x / rms(x) * (1 + weight)), n elements; y may be x.
  void (*norm)(const bf16* x, const float* weight, float eps, std::int64_t n, bf16* y);
  // residual = bf(residual + partial)
  void (*add)(bf16* residual, const bf16* partial, std::int64_t n);
  // Norm of a head, then rotary with cosine[32] and sine[32] (rounded to bf16 before).
  void (*norm_rotary)(const bf16* x, const float* weight, float eps, const float* cosine, const float* sine,
                      bf16* y);
  void (*attend_decode)(const AttendTask& task);   // tokens = 1
  void (*attend_prefill)(const AttendTask& task);  // tokens <= kAttendTokens
  void (*convolve)(const ConvTask& task);
  void (*l2_normalize)(float* x, float scale);  // 128 elements in place
  void (*delta_gates)(const DeltaGatesTask& task);
  void (*delta_recurrence)(const DeltaTask& task);  // any number of tokens
  void (*delta_prompt)(const DeltaTask& task);      // the same for many tokens: chunked where that is faster
  void (*gated_norm)(const bf16* o, const bf16* z, const float* weight, float eps, bf16* y);  // 128 elements
  LogitScan (*scan_logits)(const float* logits, std::int64_t n);
  // Sum of exact::weight(logits[i] - largest).
  std::uint64_t (*sum_weights)(const float* logits, std::int64_t n, float largest);
  // The id with the largest logits[id] + gumbel_noise(seed, position, id), the smallest of equals.
  std::int32_t (*sample_gumbel)(const float* logits, std::int64_t n, std::uint64_t seed,
                                std::int64_t position);
  // The ids with logits[id] >= threshold, ascending; returns how many, stops at `capacity`.
  std::int64_t (*collect)(const float* logits, std::int64_t n, float threshold, std::int32_t* ids,
                          std::int64_t capacity);
  void (*divide)(float* x, std::int64_t n, float by);  // x[i] /= by
  void (*to_floats)(const bf16* x, std::int64_t n, float* y);
};

[[nodiscard]] const Kernels& kernels(CpuIsa isa);

void attend_prefill_amx(const AttendTask& task);
void delta_chunks_amx(const DeltaTask& task);
extern const Kernels kKernelsBaseline, kKernelsAvx2, kKernelsAvx512, kKernelsAvx512Bf16;

}  // namespace tandem::ops::cpu
