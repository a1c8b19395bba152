#include "rank/worker.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>

#include "base/log.h"

namespace tandem::rank {

struct Worker::Shared {
  explicit Shared(WorkerOptions given) : options(std::move(given)), queue(options.queue) {}

  WorkerOptions options;
  Mailbox<Command> queue;
  Status status;
  std::mutex mutex;
  std::condition_variable ended_changed;
  bool ended = false;
};

namespace {

// A step whose work is queued on the device.
struct Begun {
  Command command;  // keeps the step alive
  std::uint64_t ticket = 0;
  comm::SequenceMark collectives;
};

// Turns whatever `work` throws into an error of this rank (R3.4).
template <class Work>
auto guarded(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::Capacity, "out of host memory");
  } catch (const std::exception& error) {
    return fail(ErrorKind::Device, fmt::format("exception: {}", error.what()));
  } catch (...) {
    return fail(ErrorKind::Device, "exception of an unknown type");
  }
}

Result<Answer> as_ack(Result<void> result) {
  if (!result) return fail(std::move(result.error()));
  return Answer(Ack{});
}

// The command loop's state; lives on the rank's thread.
class Loop {
 public:
  Loop(const WorkerOptions& options, Mailbox<Command>& queue, Status& status)
      : options_(options), queue_(queue), status_(status) {}

  void run() {
    while (std::optional<Command> command = next()) {
      status_.command.store(command->number);
      status_.command_kind.store(command->body.index());
      status_.phase.store(Phase::AtGate);
      if (!command->gate->wait()) {
        status_.phase.store(Phase::Idle);
        continue;
      }
      status_.phase.store(failed_ ? Phase::Failed : Phase::Running);
      const bool last = std::holds_alternative<ShutdownCommand>(command->body);
      if (std::holds_alternative<RunStepCommand>(command->body)) {
        begin(std::move(*command));
      } else {
        while (!begun_.empty()) finish_oldest();
        auto result = run_command(*command);
        answer(command->number, command->body, std::move(result), mark_);
      }
      status_.phase.store(failed_ ? Phase::Failed : begun_.empty() ? Phase::Idle : Phase::Running);
      if (last && !failed_) return;
    }
  }

 private:
  // The next command. With steps on the device, one that is already waiting is begun first if the device
  // may run ahead; otherwise the oldest step is finished.
  std::optional<Command> next() {
    while (!begun_.empty()) {
      if (begun_.size() < static_cast<std::size_t>(options_.max_in_flight)) {
        if (auto command = queue_.try_pop()) return command;
      }
      if (queue_.closed()) return std::nullopt;
      finish_oldest();
      status_.phase.store(failed_ ? Phase::Failed : begun_.empty() ? Phase::Idle : Phase::Running);
    }
    return queue_.pop();
  }

  void begin(Command command) {
    const std::uint64_t number = command.number;
    const Step& step = *std::get<RunStepCommand>(command.body).step;
    auto ticket = guarded([&]() -> Result<std::uint64_t> {
      TANDEM_TRY(ready(command));
      return model_->begin(step);
    });
    if (!ticket) return answer(number, command.body, fail(std::move(ticket.error())), mark_);
    mark_ = model_->collectives();
    begun_.push_back({std::move(command), *ticket, mark_});
  }

  void finish_oldest() {
    const Begun begun = std::move(begun_.front());
    begun_.pop_front();
    auto result = guarded([&]() -> Result<Answer> {
      if (failed_) return fail(*failed_);
      TANDEM_ASSIGN(StepResult artifacts, model_->finish(begun.ticket));
      if (options_.rank.value != 0) return Answer(Ack{});
      return Answer(std::move(artifacts));
    });
    answer(begun.command.number, begun.command.body, std::move(result), begun.collectives);
  }

  // What every command needs before it runs.
  Result<void> ready(const Command& command) {
    if (failed_) return fail(*failed_);
    if (!model_) {
      if (!std::holds_alternative<OpenCommand>(command.body)) {
        return fail(ErrorKind::Protocol, "comes before Open");
      }
      TANDEM_ASSIGN(model_, options_.make_model(options_.rank, status_));
    }
    if (options_.faults) TANDEM_TRY(options_.faults->before(options_.rank, command, *model_));
    return {};
  }

  Result<Answer> run_command(const Command& command) {
    return guarded([&]() -> Result<Answer> {
      TANDEM_TRY(ready(command));
      auto done = std::visit([&](const auto& body) { return execute(body); }, command.body);
      if (model_) mark_ = model_->collectives();
      return done;
    });
  }

  Result<Answer> execute(const OpenCommand&) { return as_ack(model_->open()); }
  Result<Answer> execute(const LoadCommand&) { return as_ack(model_->load()); }
  Result<Answer> execute(const WarmUpCommand&) { return as_ack(model_->warm_up()); }
  Result<Answer> execute(const MeasureCommand&) {
    TANDEM_ASSIGN(const Measured measured, model_->measure());
    return Answer(measured);
  }
  Result<Answer> execute(const AllocateCommand& sizes) { return as_ack(model_->allocate(sizes)); }
  Result<Answer> execute(const PingCommand&) { return as_ack(model_->ping()); }
  Result<Answer> execute(const RunStepCommand&) { return fail(ErrorKind::Protocol, "is begun elsewhere"); }
  Result<Answer> execute(const DropCommand& command) {
    TANDEM_ASSIGN(std::vector<bool> existed, model_->drop(command.drops));
    return Answer(DropAck{std::move(existed)});
  }
  Result<Answer> execute(const ShutdownCommand&) {
    TANDEM_TRY(model_->close());
    mark_ = model_->collectives();
    model_.reset();
    return Answer(Joined{});
  }

  void answer(std::uint64_t number, const CommandBody& body, Result<Answer> result, const comm::SequenceMark& collectives) {
    if (!result && !failed_) {
      result.error().message = fmt::format("[rank {}] {} number {}: {}", options_.rank.value, name(body),
                                           number, result.error().message);
      failed_ = result.error();
    }
    Reply reply{number, options_.rank, std::move(result), collectives};
    if (!options_.faults) return send(std::move(reply));
    for (Reply& other : options_.faults->send(options_.rank, std::move(reply))) send(std::move(other));
  }

  // A full or closed mailbox means that the controller has gone or miscounts: its deadline will tell.
  void send(Reply reply) {
    const std::uint64_t number = reply.number;
    if (!options_.replies->try_push(std::move(reply))) {
      log_debug("[rank {}] nobody takes the reply to command number {}", options_.rank.value, number);
    }
  }

  const WorkerOptions& options_;
  Mailbox<Command>& queue_;
  Status& status_;
  std::unique_ptr<RankModel> model_;
  std::deque<Begun> begun_;
  comm::SequenceMark mark_;  // after what was begun last
  std::optional<Error> failed_;
};

}  // namespace

Worker::Worker(WorkerOptions options) : shared_(std::make_shared<Shared>(std::move(options))) {
  thread_ = std::thread([shared = shared_] { run(shared); });
}

Worker::~Worker() {
  close();
  if (wait_ended(std::chrono::steady_clock::now())) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

bool Worker::try_enqueue(Command command) { return shared_->queue.try_push(std::move(command)); }

void Worker::close() { shared_->queue.close(); }

bool Worker::wait_ended(TimePoint deadline) {
  std::unique_lock lock(shared_->mutex);
  return shared_->ended_changed.wait_until(lock, deadline, [&] { return shared_->ended; });
}

const Status& Worker::status() const { return shared_->status; }

void Worker::run(const std::shared_ptr<Shared>& shared) {
  {
    Loop loop(shared->options, shared->queue, shared->status);
    loop.run();
  }  // the model ends here, on its own thread
  shared->status.phase.store(Phase::Ended);
  // The factory may hold what this thread must not be the last to hold.
  shared->options.make_model = nullptr;
  shared->options.faults.reset();
  {
    const std::lock_guard lock(shared->mutex);
    shared->ended = true;
  }
  shared->ended_changed.notify_all();
}

}  // namespace tandem::rank
