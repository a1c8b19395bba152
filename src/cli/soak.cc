#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/fixture_checkpoint.h"
#include "cli/replica_flags.h"
#include "cli/soak/requests.h"
#include "cli/soak/same.h"
#include "engine/make_engine.h"
#include "memory/page_table.h"
#include "text/tokenizer.h"

namespace tandem::cli {
namespace {

using namespace soak;

constexpr char kExamples[] =
    "Random requests that come, leave, stop and are sampled at random, on several shapes of engine with few slots and few\n"
    "pages. Each must get what another backend gives it alone: the same tokens and the same end, or a first difference\n"
    "between near-ties.\n\n"
    "  tandem soak --fixture gates/fixtures/r2-g4-untied.json --device cuda     against the CPU's operators\n"
    "  tandem soak --fixture gates/fixtures/r2-g4-untied.json --device cpu --against reference\n"
    "  tandem soak MODEL --device cuda --against device                         beside others = alone, on one device";

// Near-ties lie within this, or within 3 x the gate's floor where that is more.
constexpr double kLeastTolerance = 0.05;
constexpr double kFloors = 3;
// Equal ids with logprobs further apart than this many floors in the mean are no equal models.
constexpr double kMostMeanFloors = 2;
constexpr int kContext = 1024;

struct SoakFlags {
  ReplicaFlags replica;
  std::string against = "fast", fixture, work = "build/gates";
  int requests = 40, rounds = 3;
  unsigned seed = 1;
  double floor = 0;
};

// The shapes of engine that take turns: chunks of one page, of two, and as large as they come.
struct Shape {
  int slots, step_tokens, mixed_tokens;
  bool mixed;
};
constexpr Shape kShapes[] = {{8, 512, 512, true}, {5, 128, 96, true}, {3, 64, 64, false}};

// Gathers one request's answer; cancels it when its time has come.
class Client final : public engine::EventSink {
 public:
  Client(engine::Engine& engine, std::optional<int> leaves_after, std::function<void()> on_end)
      : engine_(engine), leaves_after_(leaves_after), on_end_(std::move(on_end)) {}

  void on_delta(RequestId request, engine::Delta delta) override {
    for (std::size_t i = 0; i < delta.tokens.size(); ++i)
      answer_.tokens.push_back(i < delta.logprobs.size() ? std::move(delta.logprobs[i]) : engine::TokenLogprob{.id = delta.tokens[i]});
    if (leaves_after_ && static_cast<int>(answer_.tokens.size()) >= *leaves_after_) engine_.cancel(request);
  }
  void on_finish(RequestId, engine::Finish finish) override {
    answer_.finish = std::move(finish);
    on_end_();
  }
  void on_failure(RequestId, Error error) override {
    if (error.kind != ErrorKind::Cancelled || !leaves_after_) failure_ = std::move(error);
    on_end_();
  }

  // After its end.
  [[nodiscard]] const Answer& answer() const { return answer_; }
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  engine::Engine& engine_;
  const std::optional<int> leaves_after_;
  const std::function<void()> on_end_;
  Answer answer_;
  std::optional<Error> failure_;
};

Result<std::unique_ptr<engine::Engine>> start(executor::ExecutorOptions options, const Shape& shape, const text::Tokenizer& tokenizer) {
  options.max_requests = shape.slots;
  options.max_step_tokens = shape.step_tokens;
  options.max_mixed_tokens = shape.mixed_tokens + (shape.mixed ? 0 : shape.slots);
  options.mixed = shape.mixed;
  options.max_context = kContext;
  options.logprobs = ops::LogprobsMode::Processed;
  options.tokens_with_text = tokenizer.vocab_size();
  options.nan_fill_freed = true;
  // Pages for one longest request and little more, so that requests wait for pages too.
  TANDEM_ASSIGN(executor::StartPlan plan, executor::plan_start(options));
  const std::int64_t page_bytes = plan.capacity.ranks.front().page_bytes;
  options.kv_bytes = page_bytes * (memory::pages_for(kContext) + 5);
  TANDEM_ASSIGN(std::unique_ptr<executor::Executor> ranks, executor::start_executor(options));
  engine::EngineOptions engine;
  engine.mixed = shape.mixed;
  engine.steps_in_flight = options.max_in_flight;
  return engine::make_engine(engine, std::move(ranks), tokenizer, plan.geometry.eos_ids);
}

Result<Answer> alone(engine::Engine& engine, const engine::Request& request) {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  const auto client = std::make_shared<Client>(engine, std::nullopt, [&] {
    const std::lock_guard lock(mutex);
    done = true;
    ended.notify_all();
  });
  TANDEM_TRY(engine.submit(request, client));
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return done; });
  if (client->failure()) return fail(*client->failure());
  return client->answer();
}

// Draws the requests and what each gives alone. One that wants a stop is asked twice.
struct Expected {
  std::vector<Planned> planned;
  std::vector<Answer> answers;
};
Result<Expected> ask_alone(engine::Engine& engine, std::mt19937& random, int requests) {
  Expected expected;
  for (int i = 0; i < requests; ++i) {
    Planned planned = draw(random, engine.vocab());
    TANDEM_ASSIGN(Answer answer, alone(engine, planned.request));
    if (planned.wants_stop) {
      planned.request.stop_token_ids = {answer.tokens[random() % answer.tokens.size()].id};
      TANDEM_ASSIGN(answer, alone(engine, planned.request));
    }
    expected.planned.push_back(std::move(planned));
    expected.answers.push_back(std::move(answer));
  }
  return expected;
}

// All of them, as many at once as chance says, between none and twice the slots.
Result<std::vector<std::shared_ptr<Client>>> run_together(engine::Engine& engine, const std::vector<Planned>& planned, std::mt19937& random, int slots) {
  std::mutex mutex;
  std::condition_variable changed;
  int live = 0, most = slots;
  std::vector<std::shared_ptr<Client>> clients;
  for (const Planned& one : planned) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return live < most; });
      ++live;
      most = 1 + static_cast<int>(random() % static_cast<unsigned>(2 * slots));
    }
    clients.push_back(std::make_shared<Client>(engine, one.leaves_after, [&] {
      const std::lock_guard lock(mutex);
      --live;
      changed.notify_all();
    }));
    TANDEM_ASSIGN(const RequestId id, engine.submit(one.request, clients.back()));
    if (one.leaves_after == 0) engine.cancel(id);
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return live == 0; });
  return clients;
}

struct Totals {
  int left = 0, stopped = 0, differ = 0, wrong = 0;
  long tokens = 0;
  double distance = 0, largest = 0, gap = 0;
};

void add(Totals& totals, const Verdict& verdict, const Answer& answer) {
  totals.left += !answer.finish;
  totals.stopped += answer.finish && answer.finish->reason == engine::FinishReason::Stop;
  totals.differ += verdict.differs;
  totals.wrong += !verdict.same;
  totals.tokens += verdict.tokens;
  totals.distance += verdict.distance;
  totals.largest = std::max(totals.largest, verdict.largest);
  totals.gap = std::max(totals.gap, verdict.gap);
}

Result<bool> run_round(const SoakFlags& flags, const executor::ExecutorOptions& device, engine::Engine& lone, const text::Tokenizer& tokenizer, int round) {
  const Shape& shape = kShapes[static_cast<std::size_t>(round) % std::size(kShapes)];
  executor::ExecutorOptions options = device;
  options.record_decode = device.record_decode && round % 2 == 0;
  std::mt19937 random(flags.seed + 7919u * static_cast<unsigned>(round));
  TANDEM_ASSIGN(const Expected expected, ask_alone(lone, random, flags.requests));
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine, start(options, shape, tokenizer));
  TANDEM_ASSIGN(const auto clients, run_together(*engine, expected.planned, random, shape.slots));
  Totals totals;
  const double tolerance = std::max(kLeastTolerance, kFloors * flags.floor);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (clients[i]->failure()) return fail(*clients[i]->failure());
    const Verdict verdict = judge(expected.planned[i].request, clients[i]->answer(), expected.answers[i], tolerance);
    add(totals, verdict, clients[i]->answer());
    if (!verdict.same) std::printf("  request %zu (%zu prompt tokens): %s\n", i, expected.planned[i].request.prompt.size(), verdict.why.c_str());
  }
  TANDEM_TRY(engine->stop());
  const engine::Load load = engine->load();
  const bool idle = load.slots_used == 0 && load.pages_used == 0;
  const double mean = totals.distance / static_cast<double>(std::max(totals.tokens, 1l));
  const bool near = flags.floor == 0 || mean <= kMostMeanFloors * flags.floor;
  std::printf("soak seed %u round %d: %zu requests (%d left, %d stopped), %d slots, steps of %d and %d tokens%s%s: %s; %ld tokens compared, %d first "
              "differences between near-ties (widest %.4f of %.4f), logprobs apart by %.5f in the mean, %.4f at most%s\n",
              flags.seed, round, clients.size(), totals.left, totals.stopped, shape.slots, shape.step_tokens, shape.mixed_tokens,
              shape.mixed ? "" : ", not mixed", options.record_decode ? ", recorded" : "", totals.wrong == 0 && near ? "SAME" : "DIFFERENT", totals.tokens,
              totals.differ, totals.gap, tolerance, mean, totals.largest,
              idle ? "" : "; slots or pages were not given back");
  std::fflush(stdout);
  return totals.wrong == 0 && near && idle;
}

Result<int> run_soak(SoakFlags flags) {
  if (!flags.fixture.empty()) {
    TANDEM_ASSIGN(const gates::FixtureFile file, gates::read_fixture(flags.fixture));
    TANDEM_ASSIGN(const std::filesystem::path model, fixture_checkpoint(file, flags.replica.model, flags.work));
    flags.replica.model = model.string();
    flags.floor = file.fixture.floor.mean;
  }
  TANDEM_ASSIGN(const Replica replica, to_options(flags.replica));
  TANDEM_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(replica.executor.model));
  executor::ExecutorOptions lone = replica.executor;
  if (flags.against != "device") {
    lone.devices = {.kind = rank::DeviceKind::Cpu,
                    .ops = flags.against == "reference" ? rank::OpsKind::Reference : rank::OpsKind::Fast,
                    .cpu_threads = flags.replica.cpu_threads};
    lone.reserve_bytes.reset();
    lone.record_decode = false;
    lone.max_in_flight = 1;
  }
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine, start(lone, {1, 512, 512, true}, tokenizer));
  bool all = true;
  for (int round = 0; round < flags.rounds; ++round) {
    TANDEM_ASSIGN(const bool same, run_round(flags, replica.executor, *engine, tokenizer, round));
    all = all && same;
  }
  TANDEM_TRY(engine->stop());
  return all ? 0 : 1;
}

}  // namespace

void add_soak(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SoakFlags>();
  CLI::App* const command = app.add_subcommand("soak", kExamples);
  flags->replica.add(*command);
  flags->replica.log_level = "warn";
  command->add_option("--against", flags->against, "Whose answers count: the CPU's fast or reference operators, or the device itself alone")
      ->check(CLI::IsMember({"fast", "reference", "device"}))->capture_default_str();
  command->add_option("--requests", flags->requests, "Requests of a round")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--rounds", flags->rounds, "Rounds, each with another shape of engine")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--seed", flags->seed, "Other requests")->capture_default_str();
  command->add_option("--fixture", flags->fixture, "The checkpoint of this fixture, and its floor: near-ties lie within three of its mean, or 0.05 if that is more");
  command->add_option("--work", flags->work, "Where fabricated checkpoints are kept")->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return run_soak(*flags); }; });
}

}  // namespace tandem::cli
