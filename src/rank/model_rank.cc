#include "rank/model_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "memory/page_table.h"
#include "memory/planner.h"
#include "model/self_check.h"
#include "ops/gemm_table.h"
#include "ops/metered_backend.h"

namespace tandem::rank {

namespace {

// Steps of more rows run as they come: the host queues one while another runs, which takes the device longer than the 8 ms
// of 128 rows. A recording costs 0.75 MiB of the device and 3 ms of start-up (4B on one H200).
constexpr int kMostRecordedRows = 256;

// The sizes up to `most` that stand for all: a backend chooses its kernels by no finer steps than its products'.
std::vector<int> sizes_up_to(int most) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; ++size)
    if (ops::gemm_bucket(size) == size || size == most) sizes.push_back(size);
  return sizes;
}

}  // namespace

ModelRank::ModelRank(std::shared_ptr<const RankSettings> settings, RankId rank, Status& status)
    : settings_(std::move(settings)), rank_(rank), status_(status) {}

ModelRank::~ModelRank() = default;

Result<void> ModelRank::open() {
  TANDEM_ASSIGN(backend_, make_backend(settings_->devices, rank_));
  if (settings_->shares && rank_.value == 0) {
    static const SteadyClock clock;
    backend_ = ops::make_metered_backend(std::move(backend_), settings_->shares, clock);
  }
  TANDEM_ASSIGN(const ops::DeviceInfo device, backend_->device());
  free_at_open_ = static_cast<std::int64_t>(device.free_bytes);
  log_info("[rank {}] {} device {}: {}{}{}, {} MiB free of {}", rank_.value, name(settings_->devices.kind),
           settings_->devices.ordinals[static_cast<std::size_t>(rank_.value)], device.name,
           device.address.empty() ? "" : ", PCI " + device.address,
           device.uuid.empty() ? "" : ", " + device.uuid, device.free_bytes >> 20, device.total_bytes >> 20);
  // Only now is it known what the device has free. A CPU rank's share was known to the plan.
  if (settings_->plan && settings_->devices.kind == DeviceKind::Cuda)
    TANDEM_TRY(memory::check_fits(*settings_->plan, rank_.value, free_at_open_));
  TANDEM_ASSIGN(partition_, model::Partition::make(settings_->geometry, rank_, settings_->group->world(),
                                                   settings_->linear_attention));
  TANDEM_ASSIGN(comm_, settings_->group->join(rank_, &status_.collective, backend_->stream()));
  if (settings_->devices.kind == DeviceKind::Cuda && settings_->group->world() > 1) {
    TANDEM_ASSIGN(const ops::DeviceInfo joined, backend_->device());
    const std::int64_t taken = free_at_open_ - static_cast<std::int64_t>(joined.free_bytes);
    log_info("[rank {}] the communicator takes {} MiB; {} were planned", rank_.value, taken >> 20,
             settings_->plan ? settings_->plan->communication_bytes >> 20 : 0);
  }
  return {};
}

Result<void> ModelRank::load() {
  const auto progress = [this](std::int64_t done, std::int64_t total) {
    status_.to_load_bytes.store(total);
    status_.loaded_bytes.store(done);
  };
  TANDEM_ASSIGN(weights_, model::Weights::load(*backend_, *settings_->checkpoint, *partition_,
                                               settings_->rounding, progress));
  return {};
}

Result<void> ModelRank::warm_up() {
  TANDEM_TRY(backend_->reserve(settings_->limits));
  TANDEM_ASSIGN(forward_, model::Forward::make(*backend_, *comm_, settings_->geometry, *partition_,
                                               std::move(*weights_),
                                               {.limits = settings_->limits,
                                                .tokens_with_text = settings_->tokens_with_text,
                                                .logprobs = settings_->logprobs,
                                                .hash_residual = settings_->hash_residual}));
  weights_.reset();
  TANDEM_ASSIGN(const memory::Pools pool,
                memory::Pools::make(*backend_, settings_->geometry, *partition_, 0, 0));
  forward_->bind(pool.views());
  warm_up_bytes_ = pool.slot_bytes() + pool.page_bytes();
  const int most = std::min(settings_->limits.max_context, settings_->limits.max_tokens);
  const int largest = std::clamp(settings_->warm_up_tokens, 1, most);
  TANDEM_TRY(run_warm_up_step(largest));
  if (!settings_->warm_every_size) return run_warm_up_step(1);
  for (const int size : sizes_up_to(largest)) TANDEM_TRY(run_warm_up_step(size));
  return {};
}

// One prompt chunk in the only slot, all of whose table is the only page.
Result<void> ModelRank::run_warm_up_step(int tokens) {
  std::vector<TokenId> ids(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<TokenId>(i * 7919 % settings_->geometry.vocab);
  const std::vector<PageId> pages(static_cast<std::size_t>(memory::pages_for(tokens)), PageId{0});
  const ops::SamplingParams greedy{.temperature = 0.0f};
  const ops::StepRow row{.kind = ops::RowKind::Prefill,
                         .tokens = tokens,
                         .slot = SlotId{0},
                         .page_count = static_cast<std::int32_t>(pages.size()),
                         .sampling = &greedy};
  const ops::LogitRow logits{
      .token = tokens - 1, .slot = SlotId{0}, .position = tokens, .top_logprobs = ops::kMaxTopLogprobs};
  TANDEM_ASSIGN(
      const std::uint64_t ticket,
      forward_->run({.tokens = ids, .rows = {&row, 1}, .pages = pages, .logit_rows = {&logits, 1}}));
  TANDEM_TRY(backend_->wait(ticket));
  return {};
}

std::int64_t ModelRank::allocated_bytes() const {
  std::int64_t bytes = 0;
  for (const ops::Allocation& piece : backend_->allocations())
    bytes += static_cast<std::int64_t>(piece.bytes);
  return bytes;
}

// What start-up took beyond the plan must fit into the reserve, or the pages that were planned do not (R5.1).
// A CPU rank counts its allocations, since the host's free memory is not its own.
Result<void> ModelRank::check_overhead(std::int64_t free_bytes) const {
  if (settings_->planned_bytes.empty()) return {};
  const std::int64_t planned = settings_->planned_bytes[static_cast<std::size_t>(rank_.value)];
  const std::int64_t taken =
      (settings_->devices.kind == DeviceKind::Cpu ? allocated_bytes() : free_at_open_ - free_bytes) - warm_up_bytes_;
  log_debug("[rank {}] start-up took {} bytes, {} were planned", rank_.value, taken, planned);
  if (taken <= planned + settings_->reserve_bytes) return {};
  // A device tells what all of its processes have taken.
  const std::string whose = settings_->devices.kind == DeviceKind::Cpu
                                ? ""
                                : fmt::format(" of the device, {} of them for this rank and the rest for libraries or by other processes",
                                              allocated_bytes() - warm_up_bytes_);
  return fail(ErrorKind::Capacity,
              fmt::format("start-up took {} bytes{}; the plan has {} and a reserve of {}; a reserve of {} works", taken, whose,
                          planned, settings_->reserve_bytes, taken - planned));
}

Result<Measured> ModelRank::measure() {
  TANDEM_TRY(backend_->synchronize());
  TANDEM_ASSIGN(const ops::DeviceInfo device, backend_->device());
  auto free_bytes = static_cast<std::int64_t>(device.free_bytes);
  TANDEM_TRY(check_overhead(free_bytes));
  // CPU ranks share one host's memory.
  if (settings_->devices.kind == DeviceKind::Cpu) free_bytes /= settings_->group->world();
  if (!settings_->memory_bytes.empty()) {
    const std::int64_t mine = settings_->memory_bytes[static_cast<std::size_t>(rank_.value)];
    free_bytes = std::min(free_bytes, std::max<std::int64_t>(mine - allocated_bytes(), 0));
  }
  if (!settings_->taken_bytes.empty()) {
    const std::int64_t taken = settings_->taken_bytes[static_cast<std::size_t>(rank_.value)];
    if (taken > 0) log_warn("[rank {}] --debug-take-memory: {} bytes are taken away", rank_.value, taken);
    free_bytes -= taken;
  }
  const ops::StepLimits& limits = settings_->limits;
  const bool whole_context = settings_->plan && !settings_->plan->context_is_wish;
  const memory::Room room =
      memory::room_in(free_bytes - settings_->reserve_bytes, {limits.slots, limits.pages}, whole_context ? memory::pages_for(limits.max_context) : 1,
                      memory::StateLayout(settings_->geometry, *partition_).slot_bytes(), memory::KvLayout(settings_->geometry, *partition_).page_bytes());
  return Measured{.free_bytes = free_bytes, .slots = room.slots, .pages = room.pages};
}

Result<void> ModelRank::allocate(const AllocateCommand& sizes) {
  // The operators were set up for the planned slots; fewer leave room unused (R5.1).
  if (sizes.slots > settings_->limits.slots || sizes.pages > settings_->limits.pages) {
    return fail(ErrorKind::Capacity,
                fmt::format("{} requests fit instead of the {} that were planned; --max-requests {} works",
                            sizes.slots, settings_->limits.slots, sizes.slots));
  }
  TANDEM_ASSIGN(pools_,
                memory::Pools::make(*backend_, settings_->geometry, *partition_, sizes.pages, sizes.slots));
  forward_->bind(pools_->views());
  book_.emplace(sizes.slots, sizes.pages);
  builder_.emplace(SlotId{sizes.slots}, PageId{sizes.pages});
  if (settings_->nan_fill_freed) {
    for (int slot = 0; slot <= sizes.slots; ++slot) TANDEM_TRY(pools_->fill_with_nan(SlotId{slot}));
    for (int page = 0; page <= sizes.pages; ++page) TANDEM_TRY(pools_->fill_with_nan(PageId{page}));
  }
  TANDEM_TRY(model::self_check(*backend_, *forward_, SlotId{sizes.slots}, PageId{sizes.pages}));
  const bool can_record = backend_->can_record();
  const int recorded = settings_->record_decode && can_record ? std::min(sizes.slots, kMostRecordedRows) : 0;
  // Recording loads what a step uses, and so does running one.
  if (settings_->warm_every_size || can_record)
    for (const int rows : sizes_up_to(std::min(sizes.slots, settings_->limits.max_tokens)))
      if (rows > recorded) TANDEM_TRY(forward_->run_padding(rows, SlotId{sizes.slots}, PageId{sizes.pages}));
  for (int rows = 1; rows <= recorded; ++rows)
    TANDEM_TRY(forward_->record_decode(rows, SlotId{sizes.slots}, PageId{sizes.pages}));
  TANDEM_TRY(backend_->synchronize());
  return comm_->barrier();
}

Result<std::uint64_t> ModelRank::begin(const Step& step) {
  TANDEM_TRY(book_->apply(step));
  TANDEM_ASSIGN(const std::uint64_t ticket, forward_->run(builder_->build(step, *book_)));
  begun_.push_back({ticket, builder_->wanted()});
  ++steps_;
  if (settings_->on_step) {
    settings_->on_step({.rank = rank_,
                        .step = steps_,
                        .collectives = comm_->sequence().number,
                        .collective_hash = comm_->sequence().hash,
                        .residual_hashes = forward_->residual_hashes(),
                        .backend = backend_.get(),
                        .pools = &*pools_});
  }
  return ticket;
}

Result<StepResult> ModelRank::finish(std::uint64_t ticket) {
  const Begun begun = std::move(begun_.front());
  begun_.erase(begun_.begin());
  TANDEM_ASSIGN(const std::span<const ops::TokenChoice> choices, backend_->wait(ticket));
  TANDEM_TRY(comm_->check());
  if (rank_.value != 0) return StepResult{};
  return StepResult{make_artifacts(begun.wanted, choices)};
}

Result<std::vector<bool>> ModelRank::drop(std::span<const Drop> drops) {
  std::vector<bool> existed;
  for (const Drop& drop : drops) {
    const std::optional<Book::Held> held = book_->drop(drop.request);
    existed.push_back(held.has_value());
    if (!held) continue;
    if (!settings_->nan_fill_freed) {
      TANDEM_TRY(pools_->scrub(held->slot));
      continue;
    }
    TANDEM_TRY(pools_->fill_with_nan(held->slot));
    for (const PageId page : held->pages) TANDEM_TRY(pools_->fill_with_nan(page));
  }
  return existed;
}

// Its stream is empty, so this waits for nothing: it asks for an error that the device has kept.
Result<void> ModelRank::ping() {
  TANDEM_TRY(backend_->synchronize());
  return comm_->check();
}

comm::SequenceMark ModelRank::collectives() const {
  return comm_ ? comm_->sequence() : comm::SequenceMark{};
}

Result<void> ModelRank::close() {
  TANDEM_TRY(backend_->synchronize());
  TANDEM_TRY(comm_->barrier());
  log_info("[rank {}] ran {} steps and {} collectives, sequence hash {:016x}", rank_.value, steps_,
           comm_->sequence().number, comm_->sequence().hash);
  return {};
}

Result<void> ModelRank::spoil(RequestId request) {
  const std::optional<SlotId> slot = book_ ? book_->slot(request) : std::nullopt;
  if (!slot) return fail(ErrorKind::NotHeld, fmt::format("[fault] request {} holds no slot", request.value));
  return pools_->fill_with_nan(*slot);
}

}  // namespace tandem::rank
