#include "ops/cuda/weight_upload.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace tandem::ops::cuda {
namespace {

// Rows [begin, end) of the source, packed, at `to`.
void gather_rows(const HostMatrix& source, std::int64_t begin, std::int64_t end, char* to) {
  const std::size_t row_bytes = static_cast<std::size_t>(source.cols) * sizeof(bf16);
  if (source.row_stride == source.cols) {
    std::memcpy(to, source.data + begin * source.cols, row_bytes * static_cast<std::size_t>(end - begin));
    return;
  }
  for (std::int64_t row = begin; row < end; ++row, to += row_bytes)
    std::memcpy(to, source.data + row * source.row_stride, row_bytes);
}

}  // namespace

WeightUpload::~WeightUpload() {
  for (void* buffer : buffers_)
    if (buffer) cudaFreeHost(buffer);
  for (cudaEvent_t event : done_)
    if (event) cudaEventDestroy(event);
}

Result<void> WeightUpload::open() {
  for (void*& buffer : buffers_) TANDEM_TRY(checked(cudaMallocHost(&buffer, kBufferBytes), "pinned staging buffer"));
  for (cudaEvent_t& event : done_)
    TANDEM_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "staging event"));
  return {};
}

Result<void> WeightUpload::copy(const Context& context, const HostMatrix& source, bf16* destination) {
  if (!buffers_[0]) TANDEM_TRY(open());
  const std::size_t row_bytes = static_cast<std::size_t>(source.cols) * sizeof(bf16);
  const std::int64_t rows_a_buffer = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBufferBytes / row_bytes));
  if (row_bytes > kBufferBytes)
    return fail(ErrorKind::Unsupported, "a weight row of " + std::to_string(row_bytes) + " bytes exceeds the staging buffer");
  for (std::int64_t begin = 0; begin < source.rows; begin += rows_a_buffer) {
    const std::int64_t end = std::min(source.rows, begin + rows_a_buffer);
    const int buffer = next_;
    next_ = (next_ + 1) % kBuffers;
    TANDEM_TRY(checked(cudaEventSynchronize(done_[buffer]), "staging wait"));
    auto* const to = static_cast<char*>(buffers_[buffer]);
    std::vector<std::jthread> helpers;
    const std::int64_t share = (end - begin + kCopyThreads - 1) / kCopyThreads;
    for (std::int64_t from = begin; from < end; from += share)
      helpers.emplace_back([&source, from, until = std::min(end, from + share), begin, to, row_bytes] {
        gather_rows(source, from, until, to + static_cast<std::size_t>(from - begin) * row_bytes);
      });
    helpers.clear();
    TANDEM_TRY(checked(cudaMemcpyAsync(destination + begin * source.cols, to,
                                       row_bytes * static_cast<std::size_t>(end - begin), cudaMemcpyHostToDevice,
                                       context.stream),
                       "weight copy"));
    TANDEM_TRY(checked(cudaEventRecord(done_[buffer], context.stream), "staging event"));
  }
  return {};
}

Result<void> WeightUpload::finish(const Context& context) {
  TANDEM_TRY(checked(cudaStreamSynchronize(context.stream), "weights"));
  for (void*& buffer : buffers_) {
    if (buffer) TANDEM_TRY(checked(cudaFreeHost(buffer), "pinned staging buffer"));
    buffer = nullptr;
  }
  for (cudaEvent_t& event : done_) {
    if (event) TANDEM_TRY(checked(cudaEventDestroy(event), "staging event"));
    event = nullptr;
  }
  return {};
}

}  // namespace tandem::ops::cuda
