#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::scheduler {
namespace {

bool non_finite(const rank::Artifact& artifact) {
  if (artifact.choice && artifact.choice->non_finite != 0) return true;
  return std::any_of(artifact.prompt_logprobs.begin(), artifact.prompt_logprobs.end(),
                     [](const ops::TokenChoice& choice) { return choice.non_finite != 0; });
}

Error cancelled() { return {ErrorKind::Cancelled, "the request was cancelled"}; }

}  // namespace

Scheduler::Scheduler(Settings settings, executor::Executor& executor, Mailbox& mailbox, Listener& listener)
    : settings_(settings),
      executor_(executor),
      mailbox_(mailbox),
      listener_(listener),
      slots_(settings.limits.slots),
      pages_(settings.limits.pages) {
  publish_load();
}

Scheduler::Turn Scheduler::tick() {
  auto turn_or = turn();
  if (turn_or) return *turn_or;
  fail_all(turn_or.error());
  return Turn::Ended;
}

Result<Scheduler::Turn> Scheduler::turn() {
  if (auto reason = executor_.poisoned()) return tandem::fail(*reason);
  drain_submissions();
  TANDEM_TRY(prune());
  publish_load();
  TANDEM_TRY(admit());
  rank::Step step = make_plan();
  TANDEM_TRY(run(std::move(step)));

  if (!idle()) return Turn::Busy;
  TANDEM_TRY(check_books());
  return stopping_ ? Turn::Ended : Turn::Idle;
}

void Scheduler::drain_submissions() {
  Mailbox::Mail mail = mailbox_.take();
  for (RequestSpec& spec : mail.submissions) {
    const RequestId id = spec.id;
    waiting_.emplace(id, std::move(spec));
  }
  for (const Closing& closing : mail.closings) close(closing);
  if (mail.stop) close_all();
}

// Marks only: the drop comes with the next prune.
void Scheduler::close(const Closing& closing) {
  if (auto node = waiting_.extract(closing.request)) {
    gone_.push_back({closing.request, cancelled()});
    mailbox_.leave_queue(1);
    return;
  }
  Live* live = find(closing.request);
  if (live == nullptr) return;  // it has ended
  if (!closing.stop_index) {
    if (!live->end) live->end = End{.reason = EndReason::Error, .error = cancelled()};
    return;
  }
  // A stop beats a length or an end id that came after it, never a cancellation or an error.
  const std::int32_t counted = *closing.stop_index + 1;
  const bool beats =
      !live->end || (live->end->reason != EndReason::Error && counted < live->end->completion_tokens);
  if (!beats) return;
  live->end = End{.reason = EndReason::StopString, .completion_tokens = counted};
  live->last.reset();
}

void Scheduler::close_all() {
  stopping_ = true;
  const Error why{ErrorKind::Cancelled, "the server is stopping"};
  mailbox_.leave_queue(waiting_.size());
  for (const auto& [id, spec] : waiting_) gone_.push_back({id, why});
  waiting_.clear();
  for (auto& live : live_)
    if (!live->end) live->end = End{.reason = EndReason::Error, .error = why};
}

// Drops on every rank what has ended, then tells the text worker. While a step that names a request is
// in flight its drop waits for a later tick.
Result<void> Scheduler::prune() {
  std::vector<rank::Drop> drops;
  for (const Gone& gone : gone_) drops.push_back({gone.request, rank::Expectation::MustBeAbsent});
  for (const auto& live : live_) {
    if (!live->end || live->in_flight > 0) continue;
    drops.push_back({live->spec.id, live->progress.run > 0 ? rank::Expectation::MustExist
                                                           : rank::Expectation::MustBeAbsent});
  }
  if (drops.empty()) return {};
  TANDEM_TRY(executor_.drop(drops));

  for (Gone& gone : gone_)
    updates_.push_back(
        {.request = gone.request, .end = End{.reason = EndReason::Error, .error = std::move(gone.why)}});
  gone_.clear();
  for (auto& live : live_) {
    if (!live->end || live->in_flight > 0) continue;
    const RequestId id = live->spec.id;
    TANDEM_TRY(slots_.release(id));
    TANDEM_TRY(pages_.release(id));
    Update update = live->last ? std::move(*live->last) : Update{.request = id};
    if (update.token) counters_.generated_tokens += 1;
    update.end = std::move(live->end);
    updates_.push_back(std::move(update));
    by_id_.erase(id);
    live.reset();
  }
  std::erase(live_, nullptr);
  listener_.on_updates(std::exchange(updates_, {}));
  return {};
}

void Scheduler::publish_load() {
  counters_.running = static_cast<std::int32_t>(live_.size());
  counters_.waiting = static_cast<std::int32_t>(waiting_.size());
  counters_.slots = settings_.limits.slots;
  counters_.pages = settings_.limits.pages;
  counters_.slots_used = slots_.held();
  counters_.pages_used = pages_.reserved();
  std::lock_guard lock(load_mutex_);
  published_ = counters_;
}

Result<void> Scheduler::admit() {
  std::size_t admitted = 0;
  while (!waiting_.empty()) {
    const RequestSpec& head = waiting_.begin()->second;
    const std::int64_t pages = pages_for_life(head.prompt_tokens(), head.max_tokens);
    if (!head_fits(slots_.free(), pages_.unreserved(), pages)) break;
    TANDEM_ASSIGN(const SlotId slot, slots_.acquire(head.id));
    TANDEM_TRY(pages_.reserve(head.id, memory::lifetime_tokens(head.prompt_tokens(), head.max_tokens)));
    auto live = std::make_unique<Live>();
    live->spec = std::move(waiting_.extract(waiting_.begin()).mapped());
    live->progress = Progress{.spec = &live->spec, .slot = slot};
    by_id_.emplace(live->spec.id, live.get());
    live_.push_back(std::move(live));
    admitted += 1;
  }
  if (admitted > 0) mailbox_.leave_queue(admitted);
  return {};
}

rank::Step Scheduler::make_plan() {
  plannable_.clear();
  for (const auto& live : live_)
    if (!live->end) plannable_.push_back(live->progress);
  return plan(settings_.limits, plannable_, last_step_prefilled_);
}

// Sends the step and reads results until no more than the allowed number is unanswered. With nothing
// to send the oldest is read, so that the loop goes on.
Result<void> Scheduler::run(rank::Step step) {
  const bool sends = !step.rows.empty();
  if (sends) TANDEM_TRY(send(std::move(step)));
  const std::size_t allowed = static_cast<std::size_t>(settings_.steps_in_flight) - 1;
  while (flights_.size() > allowed) TANDEM_TRY(collect());
  if (!sends && !flights_.empty()) TANDEM_TRY(collect());
  return {};
}

// Adds each row's pages and counts the step as run: what the next plan starts from.
Result<void> Scheduler::send(rank::Step step) {
  Flight flight{.shape = shape(step)};
  flight.requests.reserve(step.rows.size());
  for (rank::Row& row : step.rows) {
    TANDEM_ASSIGN(const std::span<const PageId> added, pages_.extend(row.request, row.base_pos + row.tokens));
    row.new_pages.assign(added.begin(), added.end());
    Live& live = *find(row.request);
    live.in_flight += 1;
    live.progress.run += row.tokens;
    if (row.samples) {
      live.progress.generated += 1;
      live.progress.last = ops::kLastSampled;
    }
    flight.requests.push_back(row.request);
  }
  last_step_prefilled_ = flight.shape.tokens > flight.shape.decode_rows;
  flights_.push_back(std::move(flight));
  return executor_.submit_step(std::move(step));
}

// Reads the oldest step's result. Clients that closed while it ran get nothing of it (R2.6).
Result<void> Scheduler::collect() {
  TANDEM_ASSIGN(rank::StepResult result, executor_.wait_step());
  drain_submissions();
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  for (const RequestId request : flight.requests) find(request)->in_flight -= 1;
  counters_.steps += 1;
  counters_.prompt_tokens += static_cast<std::uint64_t>(flight.shape.tokens - flight.shape.decode_rows);
  counters_.last_step_rows = flight.shape.rows;
  counters_.last_step_decode_rows = flight.shape.decode_rows;
  counters_.last_step_tokens = flight.shape.tokens;

  for (rank::Artifact& artifact : result.artifacts) {
    Live* live = find(artifact.request);
    if (live == nullptr)
      return tandem::fail(
          ErrorKind::Protocol,
          fmt::format("[scheduler] an artifact for request {}, which holds no slot", artifact.request.value));
    TANDEM_TRY(take_artifact(*live, std::move(artifact)));
  }
  if (!updates_.empty()) listener_.on_updates(std::exchange(updates_, {}));
  return {};
}

Result<void> Scheduler::take_artifact(Live& live, rank::Artifact artifact) {
  if (live.end) return {};  // closed, or ended by an earlier step while this one was in flight
  const RequestSpec& spec = live.spec;
  if (non_finite(artifact)) {
    const std::int32_t at = live.taken;
    live.end =
        End{.reason = EndReason::Error,
            .error = {ErrorKind::Device,
                      fmt::format("the model's logits were not finite after {} completion tokens", at)}};
    return {};
  }
  live.prompt_logprobs.insert(live.prompt_logprobs.end(),
                              std::make_move_iterator(artifact.prompt_logprobs.begin()),
                              std::make_move_iterator(artifact.prompt_logprobs.end()));
  if (!artifact.choice) return {};

  const TokenId id = artifact.choice->id;
  live.taken += 1;
  if (live.in_flight == 0) live.progress.last = id;
  Update update{.request = spec.id,
                .token = *artifact.choice,
                .prompt_logprobs = std::exchange(live.prompt_logprobs, {})};
  if (std::binary_search(spec.end_ids.begin(), spec.end_ids.end(), id))
    live.end = End{.reason = EndReason::EndId, .completion_tokens = live.taken, .end_id = id};
  else if (live.taken == spec.max_tokens)
    live.end = End{.reason = EndReason::Length, .completion_tokens = live.taken};
  if (live.end) {
    live.last = std::move(update);
    return {};
  }
  counters_.generated_tokens += 1;
  updates_.push_back(std::move(update));
  return {};
}

// R3.3: no drop, no retry; one error to everybody who has had no end.
void Scheduler::fail_all(const Error& reason) {
  failure_ = reason;
  const Error told{ErrorKind::Poisoned, fmt::format("the replica failed: {}", reason.message)};
  mailbox_.fail_with(reason);
  std::vector<Update> ends;
  const auto tell = [&](RequestId request) {
    ends.push_back({.request = request, .end = End{.reason = EndReason::Error, .error = told}});
  };
  for (const RequestSpec& spec : mailbox_.take().submissions) tell(spec.id);
  for (const auto& [id, spec] : waiting_) tell(id);
  for (const Gone& gone : gone_) tell(gone.request);
  // A request that prune() had dropped and not yet told keeps its place in updates_ only as a number.
  for (const Update& update : updates_)
    if (update.end) tell(update.request);
  for (const auto& live : live_)
    if (live) tell(live->spec.id);
  waiting_.clear();
  gone_.clear();
  updates_.clear();
  live_.clear();
  by_id_.clear();
  flights_.clear();
  counters_.running = counters_.waiting = counters_.slots = counters_.slots_used = 0;
  counters_.pages = counters_.pages_used = 0;
  {
    std::lock_guard lock(load_mutex_);
    published_ = counters_;
  }
  listener_.on_updates(std::move(ends));
}

Load Scheduler::load() const {
  std::lock_guard lock(load_mutex_);
  return published_;
}

Scheduler::Live* Scheduler::find(RequestId request) {
  const auto at = by_id_.find(request);
  return at == by_id_.end() ? nullptr : at->second;
}

// Idle: nothing may be held.
Result<void> Scheduler::check_books() const {
  TANDEM_TRY(slots_.check());
  TANDEM_TRY(pages_.check());
  if (slots_.held() == 0 && pages_.reserved() == 0) return {};
  return tandem::fail(
      ErrorKind::Corrupt,
      fmt::format("[scheduler] idle, but {} of {} slots are held and {} of {} pages set aside", slots_.held(),
                  slots_.capacity(), pages_.reserved(), pages_.capacity()));
}

bool Scheduler::idle() const {
  return live_.empty() && waiting_.empty() && gone_.empty() && flights_.empty();
}

}  // namespace tandem::scheduler
