#include "executor/rank_executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "base/log.h"
#include "executor/checks.h"

namespace tandem::executor {
namespace {

using rank::Answer;
using rank::CommandBody;

constexpr std::size_t kCommandQueue = 8;
constexpr Nanoseconds kProgressInterval = std::chrono::milliseconds(100);  // between looks at what no reply tells

TimePoint now() { return std::chrono::steady_clock::now(); }

std::int64_t milliseconds(Nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

// R2's table: the kind of answer that this rank owes.
bool right_kind(const CommandBody& body, const Answer& answer, int rank) {
  return std::visit(
      [&](const auto& command) {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, rank::MeasureCommand>) {
          return std::holds_alternative<rank::Measured>(answer);
        } else if constexpr (std::is_same_v<Command, rank::RunStepCommand>) {
          return rank == 0 ? std::holds_alternative<rank::StepResult>(answer)
                           : std::holds_alternative<rank::Ack>(answer);
        } else if constexpr (std::is_same_v<Command, rank::DropCommand>) {
          const auto* ack = std::get_if<rank::DropAck>(&answer);
          return ack != nullptr && ack->existed.size() == command.drops.size();
        } else if constexpr (std::is_same_v<Command, rank::ShutdownCommand>) {
          return std::holds_alternative<rank::Joined>(answer);
        } else {
          return std::holds_alternative<rank::Ack>(answer);
        }
      },
      body);
}

}  // namespace

RankExecutor::RankExecutor(RankExecutorOptions options)
    : options_(std::move(options)),
      capacity_(options_.wanted),
      // Every rank owes one reply per pending command; as much again for those that should not come.
      replies_(std::make_shared<rank::Mailbox<rank::Reply>>(
          static_cast<std::size_t>(options_.group->world()) * (options_.max_in_flight + 2) * 2)) {
  if (!options_.exit_process) options_.exit_process = [](int status) { ::_exit(status); };
}

RankExecutor::~RankExecutor() {
  if (!ended_) {
    if (auto ended = shutdown(); !ended) log_error("[executor] shutdown: {}", ended.error().message);
  }
}

Result<std::unique_ptr<RankExecutor>> RankExecutor::start(RankExecutorOptions options,
                                                          const StartProgressSink& progress) {
  if (options.max_in_flight < 1 || options.max_in_flight > 2) {
    return fail(ErrorKind::Invalid,
                fmt::format("[executor] max_in_flight = {}; 1 or 2", options.max_in_flight));
  }
  std::unique_ptr<RankExecutor> executor(new RankExecutor(std::move(options)));
  if (auto started = executor->start_ranks(progress); !started) {
    static_cast<void>(executor->shutdown());  // the reason is what the caller needs
    return fail(std::move(started.error()));
  }
  return executor;
}

Result<void> RankExecutor::start_ranks(const StartProgressSink& progress) {
  for (int r = 0; r < world(); ++r) {
    workers_.push_back(
        std::make_unique<rank::Worker>(rank::WorkerOptions{.rank = RankId{r},
                                                           .make_model = options_.make_model,
                                                           .replies = replies_,
                                                           .queue = kCommandQueue,
                                                           .max_in_flight = options_.max_in_flight,
                                                           .faults = options_.faults}));
  }
  const Deadlines& limits = options_.deadlines;
  TANDEM_TRY(call(rank::OpenCommand{}, limits.init, progress));
  TANDEM_TRY(call(rank::LoadCommand{}, limits.load_progress, progress));
  TANDEM_TRY(call(rank::WarmUpCommand{}, limits.init, progress));
  TANDEM_ASSIGN(const Pending measured, call(rank::MeasureCommand{}, limits.init, progress));
  TANDEM_TRY(agree_on_capacity(measured));
  TANDEM_TRY(
      call(rank::AllocateCommand{.slots = capacity_.slots, .pages = capacity_.pages}, limits.init, progress));
  return {};
}

Result<void> RankExecutor::agree_on_capacity(const Pending& measured) {
  for (int r = 0; r < world(); ++r) {
    const auto& mine = std::get<rank::Measured>(*measured.answers[r]);
    log_info("[rank {}] holds {} state slots and {} KV pages ({} MiB free)", r, mine.slots, mine.pages,
             mine.free_bytes >> 20);
    capacity_.slots = std::min(capacity_.slots, mine.slots);
    capacity_.pages = std::min(capacity_.pages, mine.pages);
  }
  // The last token of a completion is never written to a page (R5.2).
  const std::int64_t longest = std::int64_t{std::max(capacity_.pages, 0)} * ops::kPageTokens + 1;
  if (options_.context_is_wish) {
    capacity_.max_context = static_cast<std::int32_t>(std::min<std::int64_t>(capacity_.max_context, longest));
  }
  log_info("[executor] capacity: {} state slots, {} KV pages of {} tokens, {} tokens of context",
           capacity_.slots, capacity_.pages, ops::kPageTokens, capacity_.max_context);
  if (capacity_.slots < 1 || capacity_.max_context < 2 || capacity_.max_context > longest) {
    int tightest = 0;
    for (int r = 1; r < world(); ++r) {
      const auto& [free, slots, pages] = std::get<rank::Measured>(*measured.answers[r]);
      const auto& least = std::get<rank::Measured>(*measured.answers[tightest]);
      if (std::pair(slots, pages) < std::pair(least.slots, least.pages)) tightest = r;
    }
    return poison(
        {ErrorKind::Capacity,
         fmt::format("[executor] the ranks can hold {} state slots and {} KV pages, which does not serve one "
                     "request of {} tokens; rank {} has least, {} bytes free after start-up; {}",
                     capacity_.slots, capacity_.pages, capacity_.max_context, tightest,
                     std::get<rank::Measured>(*measured.answers[tightest]).free_bytes,
                     longest > 1 ? fmt::format("--max-context {} would fit", longest) : "a smaller --max-step-tokens or --reserve-memory leaves more")});
  }
  return {};
}

Result<void> RankExecutor::healthy() const {
  if (poison_) return fail(ErrorKind::Poisoned, poison_->message);
  if (ended_) return fail(ErrorKind::Poisoned, "[executor] was shut down");
  return {};
}

Result<std::uint64_t> RankExecutor::release(CommandBody body, Nanoseconds limit) {
  TANDEM_TRY(healthy());
  auto gate = std::make_shared<rank::StartGate>();
  const std::uint64_t number = ++last_number_;
  for (int r = 0; r < world(); ++r) {
    rank::Command command{number, body, gate};
    auto delivery = rank::Faults::Delivery::Normal;
    if (options_.faults) delivery = options_.faults->deliver(RankId{r}, command);
    if (delivery == rank::Faults::Delivery::Lost) continue;
    if (delivery == rank::Faults::Delivery::Refused || !workers_[r]->try_enqueue(std::move(command))) {
      gate->cancel();
      return poison(
          {ErrorKind::Protocol, fmt::format("[executor] rank {} does not take {} number {}; the rank {}", r,
                                            name(body), number, workers_[r]->status().text())});
    }
  }
  if (pending_.empty()) progress_since_ = now();
  Pending& pending = pending_.emplace_back();
  pending.number = number;
  pending.body = std::move(body);
  pending.limit = limit;
  pending.answers.resize(world());
  pending.collectives.resize(world());
  gate->release();
  return number;
}

Result<RankExecutor::Pending> RankExecutor::call(CommandBody body, Nanoseconds limit,
                                                 const StartProgressSink& progress) {
  TANDEM_ASSIGN(const std::uint64_t number, release(std::move(body), limit));
  return collect(number, progress);
}

Result<RankExecutor::Pending> RankExecutor::collect(std::uint64_t number, const StartProgressSink& progress) {
  TANDEM_TRY(healthy());
  std::int64_t loaded = -1;
  for (;;) {
    const auto wanted =
        std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.number == number; });
    if (wanted->answered == world()) {
      Pending done = std::move(*wanted);
      pending_.erase(wanted);
      TANDEM_TRY(same_collectives(done));
      return done;
    }
    // Answers come in the order of the commands, so the oldest that lacks one is what is waited for.
    const auto oldest = std::find_if(pending_.begin(), pending_.end(),
                                     [&](const Pending& p) { return p.answered < world(); });
    if (std::holds_alternative<rank::LoadCommand>(oldest->body)) {
      const std::int64_t bytes = report_load(progress, name(oldest->body));
      if (std::exchange(loaded, bytes) != bytes) progress_since_ = now();
    } else if (progress && loaded < 0) {
      progress({.phase = name(oldest->body)});
      loaded = 0;
    }
    const TimePoint end_by = std::holds_alternative<rank::ShutdownCommand>(oldest->body) ? TimePoint::max() : end_by_.load();
    const TimePoint deadline = std::min(progress_since_ + oldest->limit, end_by);
    auto reply = replies_->pop_until(std::min(deadline, now() + kProgressInterval));
    if (reply) {
      TANDEM_TRY(take(std::move(*reply)));
    } else if (now() >= deadline) {
      return poison(overdue(*oldest, end_by));
    }
  }
}

Result<void> RankExecutor::take(rank::Reply reply) {
  const auto broken = [&](std::string what) -> Result<void> {
    return poison({ErrorKind::Protocol, fmt::format("[executor] rank {} replies to command number {}: {}",
                                                    reply.rank.value, reply.number, what)});
  };
  const int r = reply.rank.value;
  if (r < 0 || r >= world()) return broken(fmt::format("ranks are 0 to {}", world() - 1));
  if (!reply.answer) return poison(std::move(reply.answer.error()));  // R2.3
  const auto pending = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const Pending& p) { return p.number == reply.number; });
  if (pending == pending_.end()) {
    return broken(pending_.empty() ? "nothing is open"
                                   : fmt::format("numbers {} to {} are open", pending_.front().number,
                                                 pending_.back().number));
  }
  if (pending->answers[r]) return broken(fmt::format("a second time ({})", name(pending->body)));
  if (!right_kind(pending->body, *reply.answer, r)) {
    return broken(fmt::format("a {} is no answer to {}", name(*reply.answer), name(pending->body)));
  }
  pending->answers[r] = std::move(*reply.answer);
  pending->collectives[r] = reply.collectives;
  if (++pending->answered == world()) progress_since_ = now();
  return {};
}

// A rank that took another path through the model would go on with sums of the wrong things.
Result<void> RankExecutor::same_collectives(const Pending& done) {
  for (int r = 1; r < world(); ++r) {
    const comm::SequenceMark &first = done.collectives[0], &other = done.collectives[r];
    if (other == first) continue;
    return poison({ErrorKind::Protocol,
                   fmt::format("[executor] the ranks diverge: after {} number {} rank {} has begun {} collectives (hash {:016x}), rank 0 {} (hash {:016x})",
                               name(done.body), done.number, r, other.number, other.hash, first.number, first.hash)});
  }
  return {};
}

Error RankExecutor::overdue(const Pending& pending, TimePoint end_by) const {
  std::string late;
  for (int r = 0; r < world(); ++r) {
    if (pending.answers[r]) continue;
    late += fmt::format("; rank {} {}", r, workers_[r]->status().text());
  }
  const bool ending = end_by < progress_since_ + pending.limit;
  return {ErrorKind::Deadline,
          fmt::format("[executor] {} number {} is not answered {} {} ms{}{}", name(pending.body), pending.number, ending ? "within" : "after",
                      milliseconds(ending ? options_.deadlines.join : pending.limit), ending ? " of the stop" : "", late)};
}

std::int64_t RankExecutor::report_load(const StartProgressSink& progress, std::string_view phase) const {
  StartProgress sum{.phase = phase};
  for (const auto& worker : workers_) {
    sum.done_bytes += worker->status().loaded_bytes.load();
    sum.total_bytes += worker->status().to_load_bytes.load();
  }
  if (progress) progress(sum);
  return sum.done_bytes;
}

Result<void> RankExecutor::submit_step(rank::Step step) {
  TANDEM_TRY(healthy());
  if (steps_.size() >= static_cast<std::size_t>(options_.max_in_flight)) {
    return fail(ErrorKind::Invalid,
                fmt::format("[executor] {} steps are in flight, as many as may be", steps_.size()));
  }
  TANDEM_TRY(check_step(step, capacity_, options_.mixed));
  TANDEM_ASSIGN(const std::uint64_t number,
                release(rank::RunStepCommand{std::make_shared<const rank::Step>(std::move(step))},
                        options_.deadlines.step));
  steps_.push_back(number);
  return {};
}

Result<rank::StepResult> RankExecutor::wait_step() {
  TANDEM_TRY(healthy());
  if (steps_.empty()) return fail(ErrorKind::Invalid, "[executor] no step is in flight");
  const std::uint64_t number = steps_.front();
  steps_.pop_front();
  TANDEM_ASSIGN(Pending done, collect(number));
  auto& result = std::get<rank::StepResult>(*done.answers[0]);
  const rank::Step& step = *std::get<rank::RunStepCommand>(done.body).step;
  if (auto right = check_artifacts(step, result, capacity_); !right) {
    right.error().message += fmt::format(" (step of command number {})", number);
    return poison(std::move(right.error()));
  }
  return std::move(result);
}

Result<void> RankExecutor::drop(std::span<const rank::Drop> drops) {
  TANDEM_TRY(healthy());
  if (drops.empty()) return {};
  TANDEM_ASSIGN(const Pending done,
                call(rank::DropCommand{{drops.begin(), drops.end()}}, options_.deadlines.drop));
  for (std::size_t i = 0; i < drops.size(); ++i) {
    const bool wanted = drops[i].expectation == rank::Expectation::MustExist;
    std::string wrong;
    for (int r = 0; r < world(); ++r) {
      if (std::get<rank::DropAck>(*done.answers[r]).existed[i] == wanted) continue;
      wrong += fmt::format("{}rank {}", wrong.empty() ? "" : ", ", r);
    }
    if (wrong.empty()) continue;
    return poison(
        {ErrorKind::Protocol,
         fmt::format("[executor] the ranks diverge: request {} {} on {} of {} ranks", drops[i].request.value,
                     wanted ? "is absent but must exist" : "exists but must be absent", wrong, world())});
  }
  return {};
}

Result<void> RankExecutor::ping() {
  TANDEM_TRY(call(rank::PingCommand{}, options_.deadlines.drop));
  return {};
}

tl::unexpected<Error> RankExecutor::poison(Error error) {
  if (poison_) return fail(ErrorKind::Poisoned, poison_->message);
  poison_ = error;
  log_error("[executor] the replica has failed: {}", error.message);
  options_.group->abort(error);
  for (const auto& worker : workers_) worker->close();
  watchdog_ = std::make_unique<Watchdog>(
      options_.deadlines.process_exit,
      [exit = options_.exit_process, limit = options_.deadlines.process_exit] {
        log_error("[executor] the process is still there {} ms after the failure", milliseconds(limit));
        exit(kExitStuckRank);
      });
  return fail(std::move(error));
}

Result<void> RankExecutor::end_ranks(TimePoint deadline) {
  std::string stuck;
  for (int r = 0; r < world() && r < static_cast<int>(workers_.size()); ++r) {
    if (workers_[r]->wait_ended(deadline)) continue;
    stuck += fmt::format("; rank {} {}", r, workers_[r]->status().text());
  }
  if (stuck.empty()) {
    workers_.clear();
    return {};
  }
  Error error{ErrorKind::Deadline, fmt::format("[executor] ranks do not end{}", stuck)};
  log_error("{}", error.message);
  options_.exit_process(kExitStuckRank);
  workers_.clear();  // where the process goes on (tests), the threads are left to themselves
  return fail(std::move(error));
}

void RankExecutor::end_soon() {
  TimePoint never = TimePoint::max();
  end_by_.compare_exchange_strong(never, now() + options_.deadlines.join);
}

Result<void> RankExecutor::shutdown() {
  if (ended_) return *ended_;
  while (!poison_ && !steps_.empty()) static_cast<void>(wait_step());  // an error poisons
  if (!poison_) static_cast<void>(call(rank::ShutdownCommand{}, options_.deadlines.join));
  for (const auto& worker : workers_) worker->close();
  Result<void> ended =
      end_ranks(now() + (poison_ ? options_.deadlines.abort_grace : options_.deadlines.join));
  if (ended && poison_) ended = fail(ErrorKind::Poisoned, poison_->message);
  ended_ = ended;
  replies_->close();
  return ended;
}

}  // namespace tandem::executor
