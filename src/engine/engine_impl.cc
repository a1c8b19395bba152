#include "engine/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/make_engine.h"
#include "engine/request_check.h"

namespace tandem::engine {

EngineImpl::EngineImpl(const EngineOptions& options, const scheduler::Limits& limits,
                       std::unique_ptr<executor::Executor> executor, const text::Tokenizer& tokenizer,
                       std::vector<TokenId> end_ids)
    : options_(options),
      limits_(limits),
      vocab_(executor->capacity().vocab),
      end_ids_(std::move(end_ids)),
      executor_(std::move(executor)),
      mailbox_(options.max_waiting),
      tokenizer_(tokenizer),
      text_worker_(mailbox_),
      scheduler_({.limits = limits, .steps_in_flight = options.steps_in_flight}, *executor_, mailbox_,
                 text_worker_),
      text_thread_([this] {
        while (text_worker_.work(true)) {
        }
      }),
      scheduler_thread_(scheduler_, *executor_, mailbox_, options.idle_ping, [this](const Error& reason) {
        if (options_.on_failed) text_worker_.post([this, reason] { options_.on_failed(reason); });
      }) {}

EngineImpl::~EngineImpl() {
  if (!text_thread_.joinable()) return;  // stopped before
  if (auto stopped = stop(); !stopped) log_error("[engine] {}", stopped.error().message);
}

Result<RequestId> EngineImpl::submit(Request request, std::shared_ptr<EventSink> sink) {
  TANDEM_ASSIGN(scheduler::RequestSpec spec,
                check_request(request, {.limits = limits_,
                                        .default_max_tokens = options_.default_max_tokens,
                                        .vocab = vocab_,
                                        .end_ids = end_ids_}));
  TANDEM_ASSIGN(Output output, Output::make(std::move(request), tokenizer_));
  const RequestId id = spec.id = mailbox_.next_id();
  text_worker_.open(id, std::move(output), std::move(sink));
  if (auto queued = mailbox_.submit(std::move(spec)); !queued) {
    text_worker_.forget(id);
    return fail(std::move(queued.error()));
  }
  return id;
}

void EngineImpl::cancel(RequestId request) {
  text_worker_.mute(request);
  mailbox_.cancel(request);
}

Load EngineImpl::load() const {
  const scheduler::Load from = scheduler_.load();
  const TextWorker::Counts ended = text_worker_.counts();
  Load load;
  load.running = from.running;
  load.waiting = from.waiting;
  load.slots = from.slots;
  load.slots_used = from.slots_used;
  load.pages = from.pages;
  load.pages_used = from.pages_used;
  load.steps = from.steps;
  load.prompt_tokens = from.prompt_tokens;
  load.generated_tokens = from.generated_tokens;
  load.requests_finished_stop = ended.stop;
  load.requests_finished_length = ended.length;
  load.requests_cancelled = ended.cancelled;
  load.requests_failed = ended.failed;
  load.last_step_rows = from.last_step_rows;
  load.last_step_decode_rows = from.last_step_decode_rows;
  load.last_step_tokens = from.last_step_tokens;
  return load;
}

State EngineImpl::state() const {
  if (mailbox_.failure()) return State::Failed;
  if (stopped_) return State::Stopped;
  return mailbox_.draining() ? State::Draining : State::Ready;
}

std::optional<Error> EngineImpl::failure() const { return mailbox_.failure(); }

std::int32_t EngineImpl::max_context() const {
  return scheduler::longest_life(limits_.max_context, limits_.pages);
}

void EngineImpl::drain() { mailbox_.drain(); }

Result<void> EngineImpl::stop() {
  std::lock_guard one_at_a_time(stop_mutex_);
  auto ended = scheduler_thread_.stop();
  text_worker_.close();
  if (text_thread_.joinable()) text_thread_.join();
  stopped_ = true;
  return ended;
}

Result<scheduler::Limits> check_options(const EngineOptions& options, const rank::Capacity& capacity) {
  const auto within = [](std::int32_t wanted, std::int32_t most) {
    return wanted > 0 ? std::min(wanted, most) : most;
  };
  const scheduler::Limits limits{
      .slots = within(options.max_requests, capacity.slots),
      .pages = capacity.pages,
      .max_context = within(options.max_context, capacity.max_context),
      .max_step_tokens = within(options.max_step_tokens, capacity.max_step_tokens),
      .max_mixed_tokens = within(options.max_mixed_tokens, capacity.max_mixed_tokens),
      .mixed = options.mixed};
  TANDEM_TRY(scheduler::check_limits(limits));
  if (options.default_max_tokens < 1)
    return fail(
        ErrorKind::Invalid,
        fmt::format("[engine] default-max-tokens {}; at least 1 is needed", options.default_max_tokens),
        "default-max-tokens");
  if (options.max_waiting < 1)
    return fail(ErrorKind::Invalid, "[engine] a queue of 0 takes no request", "max-waiting");
  if (options.idle_ping < std::chrono::milliseconds(1))
    return fail(ErrorKind::Invalid, fmt::format("[engine] idle-ping of {} ms; at least 1 is needed", options.idle_ping.count()),
                "idle-ping");
  if (options.steps_in_flight < 1)
    return fail(ErrorKind::Invalid,
                fmt::format("[engine] {} steps in flight; at least 1 is needed", options.steps_in_flight));
  return limits;
}

Result<std::unique_ptr<Engine>> make_engine(EngineOptions options,
                                            std::unique_ptr<executor::Executor> executor,
                                            const text::Tokenizer& tokenizer,
                                            std::span<const TokenId> end_ids) {
  const rank::Capacity& capacity = executor->capacity();
  TANDEM_ASSIGN(const scheduler::Limits limits, check_options(options, capacity));
  if (options.steps_in_flight > executor->max_in_flight())
    return fail(ErrorKind::Invalid, fmt::format("[engine] {} steps in flight; this executor takes 1 to {}",
                                                options.steps_in_flight, executor->max_in_flight()));
  for (const TokenId id : end_ids)
    if (id < 0 || id >= capacity.vocab)
      return fail(ErrorKind::Invalid,
                  fmt::format("[engine] end id {} is outside the model's 0 to {}", id, capacity.vocab - 1));
  return std::make_unique<EngineImpl>(options, limits, std::move(executor), tokenizer,
                                      std::vector<TokenId>(end_ids.begin(), end_ids.end()));
}

}  // namespace tandem::engine
