#include "ops/cuda/step_upload.h"

#include <fmt/format.h>

namespace tandem::ops::cuda {
namespace {

// The block: header | rows | tokens | logit rows | page updates, packed. The places follow from the
// counts alone, so steps of one shape have equal addresses (recorded steps) and a small step is a small copy.
struct Places {
  std::size_t rows, tokens, logit_rows, updates;

  Places(int row_count, int token_count, int logit_count)
      : rows(sizeof(StepHeader)),
        tokens(rows + sizeof(DeviceRow) * static_cast<std::size_t>(row_count)),
        logit_rows(tokens + sizeof(TokenInfo) * static_cast<std::size_t>(token_count)),
        updates(logit_rows + sizeof(DeviceLogitRow) * static_cast<std::size_t>(logit_count)) {}
};
static_assert(sizeof(StepHeader) % 16 == 0 && sizeof(DeviceRow) % 16 == 0 && sizeof(TokenInfo) % 16 == 0 &&
              sizeof(DeviceLogitRow) % 16 == 0);

}  // namespace

std::size_t StepUpload::bytes(const StepLimits& limits) {
  // Prompt scoring makes a logit row of every token. A page is given to a slot once, so at most all pages
  // and one scratch page a padding row come at a time.
  const Places places(limits.max_rows, limits.max_tokens, limits.max_tokens);
  return places.updates + sizeof(PageUpdate) * (static_cast<std::size_t>(limits.pages) + limits.max_rows);
}

void StepUpload::place(const StepLimits& limits, void* device, void* host[2], std::int32_t* page_table,
                       std::int32_t* last_sampled) {
  limits_ = limits;
  device_ = static_cast<char*>(device);
  host_[0] = static_cast<char*>(host[0]);
  host_[1] = static_cast<char*>(host[1]);
  step_.header = reinterpret_cast<const StepHeader*>(device_);
  step_.page_table = page_table;
  step_.last_sampled = last_sampled;
  step_.max_pages = max_pages(limits);
}

Result<void> StepUpload::upload(const Context& context, const StepView& step, int parity) {
  const int tokens = step.total_tokens();
  const auto row_count = static_cast<int>(step.rows.size());
  const auto logit_count = static_cast<int>(step.logit_rows.size());
  if (tokens > limits_.max_tokens || row_count > limits_.max_rows || logit_count > limits_.max_tokens)
    return fail(ErrorKind::Invalid, fmt::format("step of {} tokens, {} rows and {} logit rows is over the limits of {}, {} and {}",
                                                tokens, row_count, logit_count, limits_.max_tokens, limits_.max_rows,
                                                limits_.max_tokens));
  char* const host = host_[parity];
  auto& header = *reinterpret_cast<StepHeader*>(host);
  const Places places(row_count, tokens, logit_count);
  auto* rows = reinterpret_cast<DeviceRow*>(host + places.rows);
  auto* infos = reinterpret_cast<TokenInfo*>(host + places.tokens);
  auto* logit_rows = reinterpret_cast<DeviceLogitRow*>(host + places.logit_rows);
  auto* updates = reinterpret_cast<PageUpdate*>(host + places.updates);

  int update_count = 0;
  step_.prefill_chunks = step_.prefill_tiles = 0;
  for (int r = 0; r < row_count; ++r) {
    const StepRow& row = step.rows[r];
    rows[r] = {row.token_begin, row.tokens, row.base_pos, row.slot.value};
    if (row.kind == RowKind::Prefill) {
      step_.prefill_tiles += (row.tokens + kPrefillTile - 1) / kPrefillTile;
      step_.prefill_chunks += (row.tokens + kPageTokens - 1) / kPageTokens;
    }
    for (int i = 0; i < row.tokens; ++i)
      infos[row.token_begin + i] = {step.tokens[row.token_begin + i], r, row.base_pos + i, row.slot.value};
    for (int i = row.known_pages; i < row.page_count; ++i)
      updates[update_count++] = {row.slot.value, i, step.pages[row.page_begin + i].value};
  }
  for (int r = 0; r < logit_count; ++r) {
    const LogitRow& row = step.logit_rows[r];
    logit_rows[r] = {row.token, row.slot.value, row.target, row.top_logprobs, row.position, row.step_index, 0};
  }
  header = {update_count, static_cast<std::int32_t>(places.updates), logit_count, row_count};
  step_.rows = reinterpret_cast<const DeviceRow*>(device_ + places.rows);
  step_.tokens = reinterpret_cast<const TokenInfo*>(device_ + places.tokens);
  step_.logit_rows = reinterpret_cast<const DeviceLogitRow*>(device_ + places.logit_rows);
  step_.total_tokens = tokens;
  step_.total_rows = row_count;
  step_.decode_rows = step.decode_rows;
  step_.total_logit_rows = logit_count;
  return checked(cudaMemcpyAsync(device_, host, places.updates + sizeof(PageUpdate) * static_cast<std::size_t>(update_count),
                                 cudaMemcpyHostToDevice, context.stream),
                 "step upload");
}

}  // namespace tandem::ops::cuda
