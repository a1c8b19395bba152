#include "ops/host_backend.h"

#include <fmt/format.h>

#include <cstring>

namespace tandem::ops {

Result<DeviceInfo> HostBackend::device() {
  const HostMemorySize size = host_memory_size();
  return DeviceInfo{.name = name_,
                    .address = "",
                    .uuid = "",
                    .ordinal = 0,
                    .total_bytes = size.total_bytes,
                    .free_bytes = size.free_bytes};
}

Result<void*> HostBackend::allocate(std::size_t bytes, MemoryUse use, std::string_view what) {
  return memory_.allocate(bytes, use, what);
}

std::span<const Allocation> HostBackend::allocations() const { return memory_.allocations(); }

Result<LinearWeight> HostBackend::load_linear(std::span<const HostMatrix> parts, std::string_view what) {
  for (const HostMatrix& part : parts) {
    if (part.cols != parts.front().cols) {
      return fail(ErrorKind::Invalid,
                  fmt::format("[{}] parts have {} and {} columns; stacked ones need equal counts", what,
                              parts.front().cols, part.cols));
    }
  }
  return pack(parts, Stacked::Plain, what);
}

Result<LinearWeight> HostBackend::load_gate_up(const HostMatrix& gate, const HostMatrix& up,
                                               std::string_view what) {
  if (gate.rows != up.rows || gate.cols != up.cols) {
    return fail(ErrorKind::Invalid, fmt::format("[{}] gate is {} x {} and up {} x {}; equal ones are needed", what,
                                                gate.rows, gate.cols, up.rows, up.cols));
  }
  const HostMatrix parts[] = {gate, up};
  return pack(parts, Stacked::GateUp, what);
}

Result<EmbeddingWeight> HostBackend::load_embedding(const HostMatrix& table) {
  if (table.row_stride != table.cols) {
    return fail(ErrorKind::Unsupported, fmt::format("[embedding] rows lie {} elements apart, {} is needed",
                                                    table.row_stride, table.cols));
  }
  return EmbeddingWeight{.table = table.data, .vocab = table.rows, .hidden = table.cols};
}

Result<const float*> HostBackend::load_vector(std::span<const float> values, std::string_view what) {
  TANDEM_ASSIGN(void* copy, memory_.allocate(values.size_bytes(), MemoryUse::Weights, what));
  std::memcpy(copy, values.data(), values.size_bytes());
  return static_cast<const float*>(copy);
}

Result<void> HostBackend::reserve(const StepLimits& limits) {
  step_.reserve(limits);
  for (Choices& choices : choices_) choices.rows.resize(static_cast<std::size_t>(limits.max_tokens));
  return sampler_.reserve(limits, memory_);
}

Result<void> HostBackend::begin_step(const StepView& view) {
  TANDEM_TRY(step_.take(view));
  for (const StepRow& row : view.rows) {
    if (row.sampling != nullptr) sampler_.bind(row.slot, *row.sampling);
  }
  ++ticket_;
  choices_[ticket_ % kStepsKept].count = 0;
  return {};
}

TokenId HostBackend::input_token(const StepRow& row, int token) const {
  const TokenId id = step_.tokens()[static_cast<std::size_t>(token)];
  return id == kLastSampled ? sampler_.last_sampled(row.slot) : id;
}

TokenChoice* HostBackend::choices() {
  Choices& choices = choices_[ticket_ % kStepsKept];
  choices.count = step_.logit_rows().size();
  return choices.rows.data();
}

Result<void> HostBackend::note_prompt() {
  for (const StepRow& row : step_.rows()) {
    if (row.kind != RowKind::Prefill || step_.is_padding(row)) continue;
    sampler_.add_prompt(row.slot, step_.tokens().subspan(static_cast<std::size_t>(row.token_begin),
                                                         static_cast<std::size_t>(row.tokens)));
  }
  return {};
}

Result<void> HostBackend::store_sampled(const std::int32_t* ids) {
  const std::span<const LogitRow> rows = step_.logit_rows();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].target < 0) sampler_.add_output(rows[r].slot, ids[r]);
  }
  return {};
}

Result<std::uint64_t> HostBackend::end_step() { return ticket_; }

Result<std::span<const TokenChoice>> HostBackend::wait(std::uint64_t ticket) {
  if (ticket == 0 || ticket > ticket_ || ticket + kStepsKept <= ticket_) {
    return fail(ErrorKind::Invalid, fmt::format("[step] ticket {} is not among the last {} up to {}", ticket,
                                                kStepsKept, ticket_));
  }
  const Choices& choices = choices_[ticket % kStepsKept];
  return std::span<const TokenChoice>(choices.rows.data(), choices.count);
}

Result<void> HostBackend::copy_to_host(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
  return {};
}

Result<void> HostBackend::copy_to_device(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
  return {};
}

Result<void> HostBackend::fill_bytes(void* device, std::uint8_t value, std::size_t bytes) {
  std::memset(device, value, bytes);
  return {};
}

}  // namespace tandem::ops
