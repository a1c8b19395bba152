#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "ops/step_view.h"

namespace tandem::ops::cuda {

// What one rank keeps on one device (R1.5): nothing of it is shared between ranks.
// Owned by CudaBackend; thread: the rank's.
struct Context {
  int ordinal = 0;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;  // every kernel and copy of the rank, in program order
  cublasLtHandle_t lt = nullptr;
  void* workspace = nullptr;      // cuBLASLt's and split reductions'
  std::size_t workspace_bytes = 0;
};

inline constexpr int kPrefillTile = 128;  // tokens of a prefill row that one block attends for

// One token of the step on the device.
struct TokenInfo {
  std::int32_t id;   // kLastSampled: take last_sampled[slot of the row]
  std::int32_t row;  // index into rows
  std::int32_t pos;  // absolute position
  std::int32_t slot;
};

// One row of the step on the device.
struct DeviceRow {
  std::int32_t token_begin;
  std::int32_t tokens;
  std::int32_t base_pos;
  std::int32_t slot;
};

struct DeviceLogitRow {
  std::int32_t token;
  std::int32_t slot;
  std::int32_t target;        // >= 0: score, do not sample
  std::int32_t top_logprobs;
  std::int64_t position;
  std::int32_t step_index;
  std::int32_t unused;
};

struct PageUpdate {
  std::int32_t slot;
  std::int32_t index;
  std::int32_t page;
};

// At the front of the metadata block, so that a recorded step reads its counts from the device.
struct StepHeader {
  std::int32_t page_updates;
  std::int32_t page_update_offset;  // bytes from the header
  std::int32_t logit_rows;
  std::int32_t rows;
};

// The step as kernels see it. Every pointer is fixed when the backend reserves its buffers, so that a
// recorded step stays valid; counts are the host's, equal for steps of one shape.
struct DeviceStep {
  const StepHeader* header = nullptr;
  const DeviceRow* rows = nullptr;             // decode rows, then prefill rows
  const DeviceLogitRow* logit_rows = nullptr;
  const TokenInfo* tokens = nullptr;           // [T]
  std::int32_t* page_table = nullptr;          // [slots + 1, max_pages] of every slot, kept between steps
  std::int32_t* last_sampled = nullptr;        // [slots + 1]
  int max_pages = 0;                           // pages of one request at most
  int total_tokens = 0;
  int total_rows = 0;
  int decode_rows = 0;
  int total_logit_rows = 0;
  int prefill_tiles = 0;                       // of 128 tokens or less, of all prefill rows
  int prefill_chunks = 0;                      // of 64 tokens or less, of all prefill rows
};

}  // namespace tandem::ops::cuda
